package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/operation"
)

const (
	defaultAsking = 8
	defaultRate   = 50
	downAfter     = 3 // failures in a row
	probeFirst    = time.Second
	probeMost     = time.Minute
)

// provider is the pace of one provider, in one reconciler.
type provider struct {
	name  string
	kinds []string
	hold  time.Duration // for which what was taken up is put off for others
	most  int
	rate  float64
	done  chan struct{} // an inquiry has ended

	mu      sync.Mutex
	tokens  float64 // inquiries that may be begun
	counted time.Time
	width   int // inquiries that may run at once
	asking  int
	behind  int       // inquiries that have not returned after their time
	failing int       // in a row
	since   time.Time // of the first of them
	heard   time.Time // when it last answered
	down    bool
	fell    time.Time     // when that was found
	probe   time.Duration // between two questions while it is down
	next    time.Time     // not before, while it is down
	stats   ProviderStats
}

func newProvider(name string, pace Pace) (*provider, error) {
	if pace.Concurrency == 0 {
		pace.Concurrency = defaultAsking
	}
	if pace.Rate == 0 {
		pace.Rate = defaultRate
	}
	if pace.Concurrency < 1 || pace.Concurrency > operation.MaxBatch || !(pace.Rate > 0) {
		return nil, &InvalidError{fmt.Sprintf("the provider %q", name), "pace", fmt.Sprintf("%d at once and %v a second; want 1 to %d, and more than 0", pace.Concurrency, pace.Rate, operation.MaxBatch)}
	}
	return &provider{name: name, most: pace.Concurrency, rate: pace.Rate, width: 1, tokens: 1, counted: time.Now(), done: make(chan struct{}, 1), stats: ProviderStats{Provider: name}}, nil
}

// room is how many inquiries may begin now, or after which time it is worth asking again.
func (p *provider) room() (n int, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.tokens = min(p.tokens+p.rate*now.Sub(p.counted).Seconds(), float64(p.most))
	p.counted = now
	if p.behind >= p.most {
		return 0, probeMost // one of them returns
	}
	if p.down {
		switch left := p.next.Sub(now); {
		case p.asking > 0:
			return 0, probeMost
		case left > 0:
			return 0, left
		}
		return 1, 0
	}
	switch {
	case p.asking >= p.width:
		return 0, probeMost // one of them ends
	case p.tokens < 1:
		return 0, max(leastPause, time.Duration((1-p.tokens)/p.rate*float64(time.Second)))
	}
	return min(p.width-p.asking, int(p.tokens)), 0
}

// take counts what was begun.
func (p *provider) take(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens -= float64(n)
	p.asking += n
}

// rest waits until an inquiry ends, or for d.
func (p *provider) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// leaveBehind counts an inquiry that has not returned after its time, unless it has just now. left is its own, and tells [provider.returned].
func (p *provider) leaveBehind(left *bool, done <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-done:
	default:
		*left = true
		p.behind++
	}
}

// returned takes in that an inquiry has returned, which may have been left behind.
func (p *provider) returned(left *bool) {
	p.mu.Lock()
	if *left {
		p.behind--
	}
	p.mu.Unlock()
	poke(p.done)
}

// leave counts an operation that was taken up and needed no answer of the provider.
func (p *provider) leave() {
	p.mu.Lock()
	p.asking--
	p.mu.Unlock()
	poke(p.done)
}

// answered takes in how an inquiry went: err is nil if the provider answered. It returns what is to be told, once for each outage and its end.
func (p *provider) answered(err error, took time.Duration) (told *Outage) {
	defer poke(p.done)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking--
	p.stats.Asked++
	p.stats.Took += took
	p.stats.Longest = max(p.stats.Longest, took)
	now := time.Now()
	if err == nil {
		if p.down {
			told = &Outage{Provider: p.name, Over: true, Took: now.Sub(p.since)}
			p.width = 0
		}
		p.down, p.failing, p.probe, p.heard = false, 0, 0, now
		p.width = min(p.width+1, p.most)
		return told
	}
	p.stats.Failed++
	p.width = max(p.width/2, 1)
	// What is not answered ends last of all that were begun together, and so in a row. It says that the provider is down only if that has answered nobody since; and once it counts as down, only the questions that are asked of it then do.
	if begun := now.Add(-took); begun.Before(p.heard) || p.down && begun.Before(p.fell) {
		return nil
	}
	if p.failing++; p.failing == 1 {
		p.since = now
	}
	if p.failing < downAfter {
		return nil
	}
	if !p.down {
		p.down, p.fell = true, now
		p.stats.Outages++
		told = &Outage{Provider: p.name, Err: err, Took: now.Sub(p.since)}
	}
	p.probe = min(max(2*p.probe, probeFirst), probeMost)
	p.next = now.Add(around(p.probe))
	return told
}

func (p *provider) figures() ProviderStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Down, s.Asking, s.Abandoned = p.down, p.asking, p.behind
	return s
}
