package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgetconnect"
	"github.com/tenure-go/tenure/budget/budgethttp"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/gen/tenure/v1/tenurev1connect"
	"github.com/tenure-go/tenure/internal/wire"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

const (
	maxEndpoints = 16
	maxRequest   = 8 << 20         // as a server reads it
	maxReply     = 64 << 20        // as a server sends it
	shedMost     = 5               // times that a call comes again when it was told to
	dialTimeout  = 5 * time.Second // of one endpoint, where ctx has no sooner deadline
	pingAfter    = 2 * time.Second // of silence on a connection
	pingWait     = 3 * time.Second // for the answer, or the connection is dead
)

// Options says whom to ask.
type Options struct {
	Endpoints []string // http://HOST:PORT or https://HOST:PORT, 1 to 16; the first that answers is asked
	// Transport carries the requests; nil: one of its own, which speaks HTTP/2 also without TLS.
	Transport http.RoundTripper
}

// Client asks an authority. It is safe for concurrent use.
type Client struct {
	authority  fence.ID
	guarantees lease.Guarantees
	holds      hold.Guarantees
	operations operation.Guarantees
	endpoints  []*endpoint
	current    atomic.Int32
	idle       func() // closes connections that wait
	lane       *lane
	keeper     *keeper
}

// endpoint is one server.
type endpoint struct {
	url        string
	known      atomic.Bool // it was asked which authority it serves
	leases     tenurev1connect.LeaseServiceClient
	holds      tenurev1connect.HoldServiceClient
	operations tenurev1connect.OperationServiceClient
}

// Dial asks the servers, in order, which authority they serve, until one answers. It returns an [*InvalidError] or an [*UnreachableError].
func Dial(ctx context.Context, o Options) (*Client, error) {
	if len(o.Endpoints) < 1 || len(o.Endpoints) > maxEndpoints {
		return nil, &InvalidError{"endpoints", fmt.Sprintf("%d; want 1 to %d", len(o.Endpoints), maxEndpoints)}
	}
	c := &Client{idle: func() {}}
	c.lane, c.keeper = &lane{client: c}, newKeeper(c)
	if o.Transport == nil {
		own := transport()
		o.Transport, c.idle = own, own.CloseIdleConnections
	}
	for _, address := range o.Endpoints {
		if err := check(address); err != nil {
			return nil, err
		}
		c.endpoints = append(c.endpoints, c.newEndpoint(address, o.Transport))
	}
	var last error
	for i, e := range c.endpoints {
		if last = c.introduce(ctx, e); last == nil {
			c.current.Store(int32(i))
			return c, nil
		}
	}
	c.Close()
	return nil, &UnreachableError{o.Endpoints, last}
}

func check(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return &InvalidError{"endpoint", err.Error()}
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.User != nil, u.RawQuery != "", u.Fragment != "":
		return &InvalidError{"endpoint", fmt.Sprintf("%q; want http://HOST:PORT or https://HOST:PORT", u.Redacted())}
	}
	return nil
}

// transport speaks HTTP/2 with and without TLS: renewals are one stream, and many calls share a connection.
func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	// A connection that died without a word would otherwise take calls for a quarter of an hour, until the kernel gives it up.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWait}
	return t
}

func (c *Client) newEndpoint(address string, base http.RoundTripper) *endpoint {
	h := &http.Client{Transport: &budgethttp.Transport{Base: base}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	o := connect.WithClientOptions(connect.WithInterceptors(meant{c}, budgetconnect.NewClient()), connect.WithReadMaxBytes(maxReply), connect.WithSendMaxBytes(maxRequest))
	return &endpoint{
		url:        address,
		leases:     tenurev1connect.NewLeaseServiceClient(h, address, o),
		holds:      tenurev1connect.NewHoldServiceClient(h, address, o),
		operations: tenurev1connect.NewOperationServiceClient(h, address, o),
	}
}

// introduce asks a server which authority it serves. The first that answers says it for all.
func (c *Client) introduce(ctx context.Context, e *endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	m, err := e.leases.GetAuthority(ctx, &v1.GetAuthorityRequest{})
	if err != nil {
		return err
	}
	authority, guarantees, err := wire.GetAuthority(m)
	if err != nil {
		return err
	}
	operations, err := wire.GetOperationGuarantees(m.GetOperations())
	if err != nil {
		return err
	}
	if c.authority.IsZero() { // in Dial, before anybody else knows c
		c.authority, c.guarantees, c.holds, c.operations = authority, guarantees, wire.GetHoldGuarantees(m.GetHolds()), operations
	}
	if authority != c.authority {
		return &ForeignError{e.url, c.authority, authority}
	}
	e.known.Store(true)
	return nil
}

// Authority is the authority that the servers serve.
func (c *Client) Authority() fence.ID { return c.authority }

// Close ends the stream of renewals and closes connections that nobody uses. Other calls that are made go on.
func (c *Client) Close() {
	c.keeper.close()
	c.idle()
}

// ask asks, and where it is told to come again later, because there was too much to do, it does, as long as ctx allows: at most shedMost times.
func ask[Reply any](ctx context.Context, c *Client, do func(context.Context, *endpoint) (*Reply, error)) (*Reply, error) {
	for n := 0; ; n++ {
		reply, err := once(ctx, c, do)
		var shed *budget.Error
		if err == nil || n == shedMost || !errors.As(err, &shed) || shed.Class != budget.Refused || shed.RetryAfter <= 0 || shed.NoRetry {
			return reply, err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= shed.RetryAfter {
			return nil, err
		}
		timer := time.NewTimer(shed.RetryAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

// once runs do with the server that answered last. Where it certainly did not apply the request, because that did not leave or because it says so, the next one is asked; after any other failure, the next
// call asks the next one.
func once[Reply any](ctx context.Context, c *Client, do func(context.Context, *endpoint) (*Reply, error)) (*Reply, error) {
	var last error
	for range c.endpoints {
		at := c.current.Load()
		e := c.endpoints[at]
		if !e.known.Load() {
			if err := c.introduce(ctx, e); err != nil {
				c.leave(at)
				last = notSent(err)
				if ctx.Err() != nil {
					return nil, last
				}
				continue
			}
		}
		reply, err := do(ctx, e)
		if err == nil {
			return reply, nil
		}
		last = err
		fault := wire.FaultOf(err)
		if fault != nil && !wire.Elsewhere(fault) {
			return nil, err
		}
		c.leave(at)
		if fault == nil && budget.ClassOf(err) != budget.NotSent || ctx.Err() != nil {
			return nil, err
		}
	}
	return nil, last
}

// leave lets the next call ask the next server, unless another call has moved on already.
func (c *Client) leave(at int32) {
	c.current.CompareAndSwap(at, (at+1)%int32(len(c.endpoints)))
}

// notSent is a failure to find out whom a request would go to: the request itself did not leave.
func notSent(err error) error {
	var classed *budget.Error
	if errors.As(err, &classed) && classed.Class == budget.NotSent {
		return err
	}
	return &budget.Error{Class: budget.NotSent, Err: err}
}

// applied reports whether a call that failed without an authority's answer may have been applied.
func applied(err error) bool { return budget.ClassOf(err) == budget.Unknown }
