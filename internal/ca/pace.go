package ca

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits of the certificates that a caller may ask for: so many a second, and so many at once after a pause. A node proxy asks for all pods of its node,
// most of all when it starts; a pod asks for itself alone, at half of the shortest life at the most often.
const (
	perProxy, proxyBurst = 50, 2000
	perPod, podBurst     = 1, 20
	// tellEvery is how often it is told that callers ask for too many; the others are counted in the next line.
	tellEvery = time.Second
	// leastPaced is how many callers are remembered before it is looked which of them have been quiet.
	leastPaced = 1024
)

// pace bounds what each caller asks for. Its zero value is ready; it is safe for concurrent use.
type pace struct {
	mu      sync.Mutex
	callers map[string]*rate.Limiter // by the pod that the token is bound to, or the account
	sweepAt int
}

// allow counts a request, and says whether it may be answered.
func (p *pace) allow(caller Caller, proxy bool, now time.Time) bool {
	who := "pod " + caller.PodUID
	if caller.PodUID == "" {
		who = "account " + caller.Account()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.callers[who]
	if l == nil {
		p.sweep(now)
		if l = rate.NewLimiter(perPod, podBurst); proxy {
			l = rate.NewLimiter(perProxy, proxyBurst)
		}
		p.callers[who] = l
	}
	return l.AllowN(now, 1)
}

// sweep forgets callers that have been quiet for so long that nothing is lost. The lock is held.
func (p *pace) sweep(now time.Time) {
	if p.callers == nil {
		p.callers, p.sweepAt = map[string]*rate.Limiter{}, leastPaced
	}
	if len(p.callers) < p.sweepAt {
		return
	}
	for who, l := range p.callers {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(p.callers, who)
		}
	}
	p.sweepAt = max(leastPaced, 2*len(p.callers))
}

// told is when a line was written last, and of how many none was since.
type told struct {
	mu     sync.Mutex
	at     time.Time
	untold int
}

// tooMany turns away a caller that asks for too many. Lines about it are few: who asks without end must not fill the log.
func (s *Service) tooMany(caller Caller, proxy bool) error {
	most := perPod
	if proxy {
		most = perProxy
	}
	s.Observer.Refused("too_many")
	s.told.mu.Lock()
	defer s.told.mu.Unlock()
	if now := s.Now(); s.told.at.IsZero() || now.Sub(s.told.at) >= tellEvery {
		s.Logger.Warn("ca: certificate refused", "reason", "too_many", "caller", caller.Account(), "pod", caller.PodName, "node", caller.NodeName, "others", s.told.untold)
		s.told.at, s.told.untold = now, 0
	} else {
		s.told.untold++
	}
	return status.Errorf(codes.ResourceExhausted, "pod %s/%s asks for more than %d certificates a second; keep those that it has, and ask for another one at half of a certificate's life", caller.Namespace, caller.PodName, most)
}
