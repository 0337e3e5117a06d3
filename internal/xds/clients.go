package xds

import (
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/resourcelog"
)

// ClientState is what can be told about one connected client.
type ClientState struct {
	Client
	// NodeID and UserAgent are what the client says of itself.
	NodeID    string    `json:"nodeID,omitempty"`
	UserAgent string    `json:"userAgent,omitempty"`
	Address   string    `json:"address"`
	Connected time.Time `json:"connectedSince"`
	Types     []State   `json:"types"`
}

// Clients reports on all connected clients, sorted by node.
func (s *Server) Clients() []ClientState { return s.clients(func(Client) bool { return true }) }

// ClientsOf reports on the connected clients of a role, sorted by node.
func (s *Server) ClientsOf(role resourcelog.Role) []ClientState {
	return s.clients(func(c Client) bool { return c.Role == role })
}

func (s *Server) clients(of func(Client) bool) []ClientState {
	s.mu.Lock()
	streams := make([]*stream, 0, len(s.streams))
	for st := range s.streams {
		if of(st.client) {
			streams = append(streams, st)
		}
	}
	s.mu.Unlock()
	out := make([]ClientState, 0, len(streams))
	for _, st := range streams {
		st.mu.Lock()
		c := ClientState{Client: st.client, Address: st.address, Connected: st.connected, Types: st.session.States()}
		if n := st.session.Node(); n != nil {
			c.NodeID, c.UserAgent = n.GetId(), n.GetUserAgentName()
		}
		st.mu.Unlock()
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b ClientState) int {
		if c := strings.Compare(a.Node, b.Node); c != 0 {
			return c
		}
		return a.Connected.Compare(b.Connected)
	})
	return out
}
