package flakypay

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Provider is the server. Its methods are safe for concurrent use.
type Provider struct {
	c      Config
	ledger *Ledger
	rules  rules
	server *http.Server
	client *http.Client
	ctx    context.Context // ends with the provider
	cancel context.CancelFunc
	work   sync.WaitGroup // handlers and webhooks

	waiting chan struct{} // webhooks that are waiting or being sent
	calling chan struct{} // webhooks that are being sent

	mu       sync.Mutex
	started  bool
	ended    bool
	address  net.Addr
	listener net.Listener // nil: none, while it refuses connections
	absence  Absence
	changed  chan struct{} // closed when absence ends
	conns    map[net.Conn]struct{}
	gates    map[string]*gate
}

// gate is where requests wait.
type gate struct {
	reached, open chan struct{}
	wasReached    bool
	isOpen        bool
}

// New makes a provider; with [Config.File] it goes on from what is in the file. It is to be served, or closed. It returns an error matching [ErrConfig], or one
// matching [ErrFile].
func New(c Config) (*Provider, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	ledger, err := openLedger(c.File, c.Sync)
	if err != nil {
		return nil, err
	}
	p := &Provider{c: c, ledger: ledger, rules: ours(), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: webhookSlots}},
		waiting: make(chan struct{}, c.MaxWebhooks), calling: make(chan struct{}, webhookSlots),
		changed: make(chan struct{}), conns: map[net.Conn]struct{}{}, gates: map[string]*gate{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.server = &http.Server{Handler: p.routes(), ReadHeaderTimeout: headerBound, ConnState: p.track, ErrorLog: log.New(io.Discard, "", 0)}
	return p, nil
}

// Serve is a provider in one call, for a process of its own: it serves on listener until ctx ends. It is [New] and [Provider.Serve].
func Serve(ctx context.Context, listener net.Listener, c Config) error {
	p, err := New(c)
	if err != nil {
		_ = listener.Close() // it is ours whatever happens
		return err
	}
	return p.Serve(ctx, listener)
}

// Ledger is what has really happened. It can be read after the end.
func (p *Provider) Ledger() *Ledger { return p.ledger }

// Serve serves on listener, which it closes, until ctx ends or [Provider.Close] is called. Connections are cut then, and what is waiting for a delay or a gate ends
// without its effect, or without its answer. It returns when no goroutine of the provider is left: nil, the listener's error, or one matching [ErrServing] or
// [ErrFile].
func (p *Provider) Serve(ctx context.Context, listener net.Listener) error {
	p.mu.Lock()
	if p.started || p.ended {
		p.mu.Unlock()
		_ = listener.Close() // it is ours whatever happens
		return ErrServing
	}
	p.started, p.listener, p.address = true, listener, listener.Addr()
	p.mu.Unlock()
	defer context.AfterFunc(ctx, p.cancel)()
	cut := make(chan struct{})
	context.AfterFunc(p.ctx, func() {
		defer close(cut)
		p.mu.Lock()
		if p.listener != nil {
			_ = p.listener.Close() // the server may not have it yet
		}
		p.mu.Unlock()        // the server waits for its accepting, which waits for track
		_ = p.server.Close() // a listener that was closed before
	})
	err := p.accept()
	p.cancel()
	<-cut
	return errors.Join(err, p.Close())
}

// accept serves on one listener after another, as the provider goes down and comes back.
func (p *Provider) accept() error {
	for p.ctx.Err() == nil {
		p.mu.Lock()
		listener, changed := p.listener, p.changed
		p.mu.Unlock()
		if listener == nil {
			select {
			case <-changed:
			case <-p.ctx.Done():
			}
			continue
		}
		err := p.server.Serve(listener)
		p.mu.Lock()
		same := p.listener == listener
		p.mu.Unlock()
		if same && p.ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// Close ends the provider and waits until nothing of it is left. Twice is no error. It returns one matching [ErrFile].
func (p *Provider) Close() error {
	p.cancel()
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	_ = p.server.Close() // a listener that was closed before
	p.work.Wait()
	p.client.CloseIdleConnections()
	return p.ledger.close()
}

// enter begins work that Close waits for, unless the provider has ended.
func (p *Provider) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.work.Add(1)
	return true
}

func (p *Provider) leave() { p.work.Done() }

// track knows the open connections, and lets in no more than there may be.
func (p *Provider) track(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		if p.absence == Refusing || len(p.conns) >= p.c.MaxConnections {
			reset(c)
			return
		}
		p.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(p.conns, c)
	case http.StateActive, http.StateIdle:
	}
}

// reset ends a connection so that the other side is told of an error, and loses what it had not read.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a connection that is broken already needs none
	}
	_ = c.Close() // as above
}

// Down takes the provider down until [Provider.Up]: Refusing closes the listener and resets the connections, Silent accepts and never answers. What was read before
// goes on to its effect. Who refuses connections does so until Up, whatever else is asked for. It returns an error matching [ErrServing] if the provider does not
// serve.
func (p *Provider) Down(how Absence) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started || p.ended {
		return ErrServing
	}
	if how == Served || p.absence == how || p.absence == Refusing {
		return nil
	}
	p.absence = how
	if how == Refusing {
		_ = p.listener.Close() // it is replaced
		p.listener = nil
		for c := range p.conns {
			reset(c)
		}
	}
	return nil
}

// Up ends [Provider.Down], at the same address. Connections that were accepted meanwhile are reset. It returns the error of listening there, and is still down then.
func (p *Provider) Up(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.absence == Served {
		return nil
	}
	if p.listener == nil {
		listener, err := new(net.ListenConfig).Listen(ctx, p.address.Network(), p.address.String())
		if err != nil {
			return err
		}
		if p.ended || p.ctx.Err() != nil {
			_ = listener.Close() // nobody would accept
			return ErrServing
		}
		p.listener = listener
	}
	p.absence = Served
	close(p.changed)
	p.changed = make(chan struct{})
	return nil
}

// Reached is closed when a request has come to a gate.
func (p *Provider) Reached(name string) <-chan struct{} { return p.gate(name).reached }

// Open lets pass whoever waits at a gate, or ever will.
func (p *Provider) Open(name string) {
	g := p.gate(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !g.isOpen {
		g.isOpen = true
		close(g.open)
	}
}

// gate finds one or makes it. Beyond MaxGates it is one that belongs to nobody, and open.
func (p *Provider) gate(name string) *gate {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.gates[name]
	if g == nil {
		g = &gate{reached: make(chan struct{}), open: make(chan struct{})}
		if len(p.gates) >= MaxGates {
			close(g.open)
			g.isOpen = true
			return g
		}
		p.gates[name] = g
	}
	return g
}

// wait is a delay and then a gate; false: the provider has ended.
func (p *Provider) wait(d time.Duration, name string) bool {
	if !p.pause(d) {
		return false
	}
	if name == "" {
		return true
	}
	g := p.gate(name)
	p.mu.Lock()
	if !g.wasReached {
		g.wasReached = true
		close(g.reached)
	}
	p.mu.Unlock()
	select {
	case <-g.open:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// pause waits by the provider's clock; false: the provider has ended.
func (p *Provider) pause(d time.Duration) bool {
	if d <= 0 {
		return p.ctx.Err() == nil
	}
	passed, stop := p.c.Clock.After(d)
	defer stop()
	select {
	case <-passed:
		return true
	case <-p.ctx.Done():
		return false
	}
}
