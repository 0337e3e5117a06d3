package listenerstore

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	storepb "lateen.dev/lateen/internal/gen/listenerstore"
)

const (
	maxMessage = 4096 // bytes of a packet, in either direction
	maxSockets = 16   // of one pod
	maxLedgers = 64   // of one proxy
)

var errTooLong = fmt.Errorf("message exceeds %d bytes", maxMessage)

// parse reads a proxy's request that came with a number of descriptors. In a request that it accepts, pods and sockets have
// names, no name repeats, and each socket has a descriptor.
func parse(b []byte, descriptors int) (*storepb.ProxyMessage, error) {
	var m storepb.ProxyMessage
	if err := proto.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	uid, expected := "-", 0
	switch p := m.Payload.(type) {
	case *storepb.ProxyMessage_Hello:
		if p.Hello.GetVersion() != storepb.Version_V1 {
			return nil, fmt.Errorf("the proxy speaks version %d of the listener store's protocol, this agent speaks version 1; run versions that fit together", p.Hello.GetVersion())
		}
		if p.Hello.GetLedgers() > maxLedgers {
			return nil, fmt.Errorf("%d ledgers are more than %d", p.Hello.GetLedgers(), maxLedgers)
		}
		expected = int(p.Hello.GetLedgers())
	case *storepb.ProxyMessage_Take:
		uid = p.Take.GetUid()
	case *storepb.ProxyMessage_Give:
		uid, expected = p.Give.GetUid(), len(p.Give.GetNames())
		if expected > maxSockets {
			return nil, fmt.Errorf("%d sockets of a pod are more than %d", expected, maxSockets)
		}
		seen := map[string]bool{}
		for _, name := range p.Give.GetNames() {
			if name == "" || seen[name] {
				return nil, fmt.Errorf("the name %q of a socket is empty or not its own", name)
			}
			seen[name] = true
		}
	case *storepb.ProxyMessage_Release:
		uid = p.Release.GetUid()
	case *storepb.ProxyMessage_Draining:
	default:
		return nil, errors.New("the request has no payload that this agent knows; the proxy may be newer than the agent")
	}
	if uid == "" {
		return nil, errors.New("the request names no pod")
	}
	if descriptors != expected {
		return nil, fmt.Errorf("the request carries %d descriptors instead of %d", descriptors, expected)
	}
	return &m, nil
}

func encode(m *storepb.AgentMessage) ([]byte, error) {
	b, err := proto.Marshal(m)
	if err == nil && len(b) > maxMessage {
		err = errTooLong
	}
	return b, err
}

func ackMessage(err error) *storepb.AgentMessage {
	text := ""
	if err != nil {
		text = err.Error()
		text = text[:min(len(text), maxMessage/2)]
	}
	return &storepb.AgentMessage{Payload: &storepb.AgentMessage_Ack{Ack: &storepb.Ack{Error: text}}}
}

// welcomeMessage answers hello. It lets the proxy map its ledgers, since void never shortens them.
func welcomeMessage() *storepb.AgentMessage {
	return &storepb.AgentMessage{Payload: &storepb.AgentMessage_Ack{Ack: &storepb.Ack{KeepsLength: true}}}
}

func heldMessage(sockets []*held) *storepb.AgentMessage {
	names := make([]string, len(sockets))
	for i, h := range sockets {
		names[i] = h.name
	}
	return &storepb.AgentMessage{Payload: &storepb.AgentMessage_Held{Held: &storepb.Held{Names: names}}}
}

func terminatingMessage(uid string) *storepb.AgentMessage {
	return &storepb.AgentMessage{Payload: &storepb.AgentMessage_Terminating{Terminating: &storepb.Terminating{Uid: uid}}}
}
