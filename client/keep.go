package client

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/tenure-go/tenure/budget"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/wire"
)

const (
	keepFor   = 45 * time.Second // of a stream, which a server ends after a minute
	keepAgain = 10 * time.Second // after a stream has broken: until then renewals are calls
	keepNever = 10 * time.Minute // after one that has never answered: something on the way may not speak HTTP/2
	keepMost  = 1024             // renewals under way on a stream
	keepRest  = 30 * time.Second // what a stream that is finished may take to answer what is pending, and to end
)

// keeper renews sessions on one stream, while there is one. Where there is none, a renewal is a call of its own, and a stream is opened beside it, so that no renewal waits for one.
type keeper struct {
	client *Client
	ctx    context.Context // of all streams: it ends when the client is closed
	cancel context.CancelFunc

	mu      sync.Mutex
	stream  *keepStream
	opening bool
	not     time.Time // before which none is opened
	closed  bool
	readers sync.WaitGroup
}

// keepStream is one stream. Its pending renewals are told what is known when it ends.
type keepStream struct {
	e       *endpoint
	conn    *connect.BidiStreamForClientSimple[v1.KeepSessionRequest, v1.KeepSessionResponse]
	ctx     context.Context
	cancel  context.CancelFunc
	until   time.Time
	sending chan struct{} // taken by whoever sends

	mu      sync.Mutex
	tag     int64
	heard   int64 // how many answers came
	pending map[int64]chan *v1.KeepSessionResponse
	over    bool
}

func newKeeper(c *Client) *keeper {
	ctx, cancel := context.WithCancel(context.Background())
	return &keeper{client: c, ctx: ctx, cancel: cancel}
}

// renew returns nil and no error where there is no stream: then the caller makes a call.
func (k *keeper) renew(ctx context.Context, req *v1.RenewSessionRequest) (*v1.KeepSessionResponse, error) {
	s := k.current()
	if s == nil {
		return nil, nil
	}
	if ended := ctx.Err(); ended != nil {
		return nil, unsent(ended)
	}
	tag, heard, answer := s.expect()
	if answer == nil {
		return nil, nil
	}
	select {
	case s.sending <- struct{}{}:
	case <-ctx.Done():
		k.silent(s, tag, heard)
		return nil, unsent(context.Cause(ctx))
	}
	stop := context.AfterFunc(ctx, func() { k.silent(s, tag, heard) }) // Send waits until somebody takes what it sends, whatever becomes of ctx
	err := s.conn.Send(&v1.KeepSessionRequest{Renew: req, Tag: tag})
	stop()
	<-s.sending
	if err != nil { // what was buffered may leave all the same
		k.end(s)
		return nil, &budget.Error{Class: budget.Unknown, Err: err}
	}
	select {
	case m, ok := <-answer:
		if !ok {
			return nil, &budget.Error{Class: budget.Unknown, Err: errStreamOver}
		}
		if fault := m.GetFault(); fault != nil && wire.Elsewhere(fault) {
			k.end(s)
			return nil, nil // it was not applied: the call asks another server too
		}
		return m, nil
	case <-ctx.Done():
		k.silent(s, tag, heard)
		return nil, &budget.Error{Class: budget.Unknown, Err: context.Cause(ctx)}
	}
}

// silent expects an answer no more, and ends a stream that has given none since it was expected: it may be dead without saying so, and the next renewal does not wait for it.
func (k *keeper) silent(s *keepStream, tag, heard int64) {
	if s.forget(tag) == heard {
		k.end(s)
	}
}

// current is the stream, or nil; then one is opened beside the caller.
func (k *keeper) current() *keepStream {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.stream; s != nil && time.Now().Before(s.until) && s.e == k.client.endpoints[k.client.current.Load()] {
		return s
	}
	if old := k.stream; old != nil {
		k.stream = nil
		go old.finish()
	}
	if !k.opening && !k.closed && time.Now().After(k.not) {
		k.opening = true
		k.readers.Go(k.open)
	}
	return nil
}

// open opens a stream and reads it until it ends.
func (k *keeper) open() {
	e := k.client.endpoints[k.client.current.Load()]
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	s := &keepStream{e: e, ctx: ctx, cancel: cancel, until: time.Now().Add(keepFor), sending: make(chan struct{}, 1), pending: map[int64]chan *v1.KeepSessionResponse{}}
	var err error
	s.conn, err = e.leases.KeepSession(ctx)
	k.mu.Lock()
	k.opening = false
	if err != nil || k.closed || !e.known.Load() {
		k.not = time.Now().Add(keepAgain)
		k.mu.Unlock()
		return
	}
	k.stream = s
	k.mu.Unlock()
	for {
		m, err := s.conn.Receive()
		if err != nil {
			k.end(s)
			return
		}
		s.deliver(m)
	}
}

// end gives a stream up: what is pending on it is unknown.
func (k *keeper) end(s *keepStream) {
	s.cancel()
	_ = s.conn.CloseRequest() // net/http heeds the context only once it reads nothing more of the request
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	k.mu.Lock()
	if k.stream == s {
		k.stream = nil
		switch {
		case s.heard == 0:
			k.not = time.Now().Add(keepNever)
		case time.Now().Before(s.until): // not because it was time
			k.not = time.Now().Add(keepAgain)
		}
	}
	k.mu.Unlock()
	for tag, answer := range s.pending {
		close(answer)
		delete(s.pending, tag)
	}
}

// close ends the stream for ever. What is pending on it is unknown.
func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	s := k.stream
	k.mu.Unlock()
	k.cancel() // also of those that are finished, and have not ended
	if s != nil {
		k.end(s)
	}
	k.readers.Wait() // so that its connection is one that nobody uses
}

// finish sends nothing more on a stream whose time is over; the server answers what is pending, and ends it.
func (s *keepStream) finish() {
	select {
	case s.sending <- struct{}{}:
		defer func() { <-s.sending }()
	case <-s.ctx.Done():
	}
	_ = s.conn.CloseRequest() // if it is over already, its reader has noticed
	time.AfterFunc(keepRest, s.cancel)
}

// expect is a tag, how many answers have come before, and where this one comes; nil if the stream is over, or full.
func (s *keepStream) expect() (tag, heard int64, answer chan *v1.KeepSessionResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || len(s.pending) >= keepMost {
		return 0, 0, nil
	}
	s.tag++
	answer = make(chan *v1.KeepSessionResponse, 1)
	s.pending[s.tag] = answer
	return s.tag, s.heard, answer
}

// forget expects no answer any more, and returns how many have come.
func (s *keepStream) forget(tag int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, tag)
	return s.heard
}

func (s *keepStream) deliver(m *v1.KeepSessionResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard++
	if answer := s.pending[m.GetTag()]; answer != nil {
		answer <- m
		delete(s.pending, m.GetTag())
	}
}
