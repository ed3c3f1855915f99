package upstream

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/fence/fencehttp"
)

// calls are the requests that the service is at work on. As a transport it gives up waiting when the request's context ends, and
// keeps the request's turn until the service has answered.
type calls struct {
	base   *http.Transport
	giveUp time.Duration
	log    *slog.Logger

	mu   sync.Mutex
	n    int
	idle chan struct{} // closed while n is 0
}

func newCalls(giveUp time.Duration, log *slog.Logger) *calls {
	c := &calls{giveUp: giveUp, log: log, idle: make(chan struct{})}
	close(c.idle)
	return c
}

func (c *calls) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		c.idle = make(chan struct{})
	}
	c.n++
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	if c.n == 0 {
		close(c.idle)
	}
}

func (c *calls) wait(ctx context.Context) error {
	c.mu.Lock()
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 { // it ended just then
		return nil
	}
	return &leftBehindError{calls: c.n}
}

// call is one of them.
type call struct {
	of      *calls
	ctx     context.Context // of the call to the service, which outlives its client's
	end     func()
	log     *slog.Logger
	started time.Time
}

// answer is what the service said.
type answer struct {
	resp *http.Response
	err  error
}

// RoundTrip sends the request and returns the answer, or the cause of the context's end. Then the call goes on.
func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	k := c.start(r)
	out := r.Clone(k.ctx)
	if r.GetBody != nil && r.Body != nil && r.Body != http.NoBody {
		body, err := r.GetBody() // the request's own ends with its handler
		if err != nil {
			k.end()
			return nil, err
		}
		out.Body = body
	}
	got := make(chan answer, 1)
	go func() {
		resp, err := noting{c.base}.RoundTrip(out) //nolint:bodyclose // relay and outlive close it
		got <- answer{resp, err}
	}()
	select {
	case a := <-got:
		if a.err != nil {
			k.end()
			return nil, a.err
		}
		a.resp.Body = k.relay(r.Context(), a.resp.Body)
		return a.resp, nil
	case <-r.Context().Done():
		go k.outlive(got)
		return nil, context.Cause(r.Context())
	}
}

// start begins a call, which has the request's turn until its end.
func (c *calls) start(r *http.Request) *call {
	release := fencehttp.Hold(r.Context())
	c.begin()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	stop := func() bool { return true }
	if c.giveUp > 0 {
		stop = time.AfterFunc(c.giveUp, func() { cancel(errGivenUp) }).Stop
	}
	k := &call{of: c, ctx: ctx, started: time.Now(), log: c.log.With("method", r.Method, "resource", found(r).resource)}
	k.end = sync.OnceFunc(func() {
		stop()
		if context.Cause(ctx) != nil {
			k.log.Error("gave a request up that the service did not answer; what it still does may land after a newer owner's write", "after_ms", time.Since(k.started).Milliseconds())
		}
		cancel(nil)
		release()
		c.end()
	})
	return k
}

// outlive waits for an answer that nobody else waits for.
func (k *call) outlive(got <-chan answer) {
	k.log.Warn("nobody waits any more for a request that the service is at work on; its turn is kept until it has answered")
	a := <-got
	if a.err == nil {
		_, _ = io.Copy(io.Discard, a.resp.Body) // what matters is that it ended
		_ = a.resp.Body.Close()
	}
	k.log.Info("the service is done with a request that nobody waited for", "after_ms", time.Since(k.started).Milliseconds(), "error", a.err)
	k.end()
}

// relay hands on the body of an answer while ctx lasts, and reads it to its end in any case.
func (k *call) relay(ctx context.Context, body io.ReadCloser) io.ReadCloser {
	pr, pw := io.Pipe()
	stop := context.AfterFunc(ctx, func() { pw.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(pw, body)
		if err != nil {
			_, _ = io.Copy(io.Discard, body) // its reader went away, or it broke off
		}
		k.end() // before the reader learns that all is there, so that the next turn can begin
		pw.CloseWithError(err)
		stop()
		_ = body.Close()
	}()
	return pr
}

// noting notes in the error of a request whether anything of it was sent. Where a client says that it may (Idempotency-Key), and for
// reads, the transport sends a request again when its connection broke: that the second did not reach the service tells nothing of the first.
type noting struct{ base http.RoundTripper }

// RoundTrip is part of [http.RoundTripper].
func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent atomic.Bool
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	resp, err := n.base.RoundTrip(r.WithContext(ctx))
	if err != nil && sent.Load() {
		err = &sentError{err}
	}
	return resp, err
}
