package keeper

import (
	"io"
	"slices"
)

// shelf is the bookkeeping of held sockets: who listens on which, and which nobody will accept from any more. It closes
// those. Nothing here knows what a socket is.
type shelf struct {
	// part closes sockets of one network namespace that another proxy may have listeners of its own beside.
	part    func(inode uint64, sockets []io.Closer)
	proxies map[int]map[string]bool // proxies that serve, by number, with the pods that they have settled
	pods    map[string][]*held      // by uid; the newest last
}

// held is one socket of a pod.
type held struct {
	name    string
	inode   uint64 // of the network namespace that it lives in
	cookie  uint64 // the kernel's name for it
	socket  io.Closer
	holders map[int]bool // proxies that listen on it
}

func newShelf(part func(uint64, []io.Closer)) *shelf {
	return &shelf{part: part, proxies: map[int]map[string]bool{}, pods: map[string][]*held{}}
}

// come notes a proxy that may ask for what is held.
func (s *shelf) come(proxy int) { s.proxies[proxy] = map[string]bool{} }

// give takes a socket that a proxy listens on; it closes the duplicate of one that is held already.
func (s *shelf) give(proxy int, uid string, h held) {
	if s.proxies[proxy] == nil {
		h.socket.Close() // it ends, or has ended
		return
	}
	var same *held
	for _, other := range s.pods[uid] {
		switch {
		case other.cookie == h.cookie:
			same = other
		case other.name == h.name:
			delete(other.holders, proxy) // it has another one now
		}
	}
	if same != nil {
		h.socket.Close()
		same.holders[proxy] = true
		return
	}
	h.holders = map[int]bool{proxy: true}
	s.pods[uid] = append(s.pods[uid], &h)
}

// settle notes that a proxy has all that it will listen on for a pod.
func (s *shelf) settle(proxy int, uid string) {
	if settled := s.proxies[proxy]; settled != nil {
		settled[uid] = true
	}
	s.sweep(uid)
}

// take answers the newest socket of each name that lives in the namespace. The proxy counts as listening on them.
func (s *shelf) take(proxy int, uid string, inode uint64) []*held {
	if s.proxies[proxy] == nil {
		return nil
	}
	var taken []*held
	for _, h := range slices.Backward(s.pods[uid]) {
		if h.inode == inode && !slices.ContainsFunc(taken, func(o *held) bool { return o.name == h.name }) {
			taken = append(taken, h)
			h.holders[proxy] = true
		}
	}
	slices.Reverse(taken)
	return taken
}

// release ends what a proxy has to do with a pod.
func (s *shelf) release(proxy int, uid string) {
	for _, h := range s.pods[uid] {
		delete(h.holders, proxy)
	}
	// Nobody waits for a pod that is let go.
	s.drop(uid, func(h *held) bool { return len(h.holders) == 0 }, closeEach)
}

// leave ends what a proxy has to do with all pods.
func (s *shelf) leave(proxy int) {
	delete(s.proxies, proxy)
	for uid, sockets := range s.pods {
		for _, h := range sockets {
			delete(h.holders, proxy)
		}
		s.sweep(uid)
	}
}

// sweep closes what nobody listens on, unless a proxy that has come may still ask for it.
func (s *shelf) sweep(uid string) {
	for _, settled := range s.proxies {
		if !settled[uid] {
			return
		}
	}
	s.drop(uid, func(h *held) bool { return len(h.holders) == 0 }, s.part)
}

// closeOrphans closes what nobody listens on, whoever might still ask.
func (s *shelf) closeOrphans() {
	for uid := range s.pods {
		s.drop(uid, func(h *held) bool { return len(h.holders) == 0 }, s.part)
	}
}

func (s *shelf) forget(uid string) { s.drop(uid, func(*held) bool { return true }, closeEach) }

func (s *shelf) clear() {
	for uid := range s.pods {
		s.forget(uid)
	}
}

func (s *shelf) drop(uid string, which func(*held) bool, end func(inode uint64, sockets []io.Closer)) {
	ended := map[uint64][]io.Closer{}
	left := slices.DeleteFunc(s.pods[uid], func(h *held) bool {
		if !which(h) {
			return false
		}
		ended[h.inode] = append(ended[h.inode], h.socket)
		return true
	})
	if len(left) == 0 {
		delete(s.pods, uid)
	} else {
		s.pods[uid] = left
	}
	for inode, sockets := range ended {
		end(inode, sockets)
	}
}

func closeEach(_ uint64, sockets []io.Closer) {
	for _, socket := range sockets {
		socket.Close()
	}
}

func (s *shelf) count() int {
	n := 0
	for _, sockets := range s.pods {
		n += len(sockets)
	}
	return n
}
