package listenerstore

import (
	"io"
	"slices"
)

// socketTable records which proxies listen on each held socket. It closes a socket that no proxy will accept from again. It
// knows a socket as an io.Closer only.
type socketTable struct {
	// migrate closes sockets of one network namespace in which another proxy may have listeners of its own.
	migrate func(inode uint64, sockets []io.Closer)
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

func newSocketTable(migrate func(uint64, []io.Closer)) *socketTable {
	return &socketTable{migrate: migrate, proxies: map[int]map[string]bool{}, pods: map[string][]*held{}}
}

// join adds a proxy, which may ask for held sockets.
func (s *socketTable) join(proxy int) { s.proxies[proxy] = map[string]bool{} }

// give takes a socket that a proxy listens on; it closes the duplicate of one that is held already.
func (s *socketTable) give(proxy int, uid string, h held) {
	if s.proxies[proxy] == nil {
		h.socket.Close() // the proxy drains, or has ended
		return
	}
	var same *held
	for _, other := range s.pods[uid] {
		switch {
		case other.cookie == h.cookie:
			same = other
		case other.name == h.name:
			delete(other.holders, proxy) // the new socket replaces it
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

// settle notes that a proxy has all its listeners of a pod.
func (s *socketTable) settle(proxy int, uid string) {
	if settled := s.proxies[proxy]; settled != nil {
		settled[uid] = true
	}
	s.sweep(uid)
}

// take returns the newest socket of each name in a network namespace. From now on the proxy counts as listening on them.
func (s *socketTable) take(proxy int, uid string, inode uint64) []*held {
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

// release removes a proxy from the holders of a pod's sockets.
func (s *socketTable) release(proxy int, uid string) {
	for _, h := range s.pods[uid] {
		delete(h.holders, proxy)
	}
	// No connection waits in a pod that is released: its redirection is gone.
	s.drop(uid, func(h *held) bool { return len(h.holders) == 0 }, closeEach)
}

// leave removes a proxy, which drains or has ended.
func (s *socketTable) leave(proxy int) {
	delete(s.proxies, proxy)
	for uid, sockets := range s.pods {
		for _, h := range sockets {
			delete(h.holders, proxy)
		}
		s.sweep(uid)
	}
}

// sweep closes the sockets of a pod without holders, unless a connected proxy may still ask for them.
func (s *socketTable) sweep(uid string) {
	for _, settled := range s.proxies {
		if !settled[uid] {
			return
		}
	}
	s.drop(uid, func(h *held) bool { return len(h.holders) == 0 }, s.migrate)
}

// closeOrphans closes all sockets without holders.
func (s *socketTable) closeOrphans() {
	for uid := range s.pods {
		s.drop(uid, func(h *held) bool { return len(h.holders) == 0 }, s.migrate)
	}
}

func (s *socketTable) forget(uid string) { s.drop(uid, func(*held) bool { return true }, closeEach) }

func (s *socketTable) clear() {
	for uid := range s.pods {
		s.forget(uid)
	}
}

func (s *socketTable) drop(uid string, which func(*held) bool, end func(inode uint64, sockets []io.Closer)) {
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

func (s *socketTable) count() int {
	n := 0
	for _, sockets := range s.pods {
		n += len(sockets)
	}
	return n
}
