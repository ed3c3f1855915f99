package pgserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Mode says what a proxy does with what passes.
type Mode int

const (
	// Pass hands on all there is.
	Pass Mode = iota + 1
	// DropReplies hands on what clients ask and swallows what the server answers: requests are applied, and nobody hears.
	DropReplies
	// Blackhole swallows both directions and keeps every connection open.
	Blackhole
	// Refuse closes new connections at once and leaves those that are open alone; see also [Proxy.Cut].
	Refuse
)

const (
	maxConnections = 1024 // of one proxy at a time; more are closed at once
	maxInFlight    = 256  // messages of one direction of a connection that a delay may hold back; then reading waits
)

// Proxy stands on a real TCP connection between clients and a PostgreSQL server, reads its messages, and delays, loses or
// swallows them. It cannot pass TLS. Its settings may change while connections are open. Safe for use by
// several goroutines.
type Proxy struct {
	to       string
	listener net.Listener
	serving  sync.WaitGroup

	mu    sync.Mutex
	mode  Mode
	delay time.Duration
	want  []byte // nil: no answer is to be lost
	do    func()
	conns map[*conn]struct{}
	over  bool
}

// StartProxy listens on a free loopback port and hands on to the server at to, a host:port. It runs until Close.
func StartProxy(ctx context.Context, to string) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", hostPort(0))
	if err != nil {
		return nil, fmt.Errorf("pgserver: proxy: %w", err)
	}
	p := &Proxy{to: to, listener: listener, mode: Pass, conns: map[*conn]struct{}{}}
	p.serving.Go(p.serve)
	return p, nil
}

// Addr is the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL is for a superuser of the server behind the proxy.
func (p *Proxy) URL(database string) string { return p.URLAs(Admin, database) }

// URLAs is for a role.
func (p *Proxy) URLAs(role, database string) string {
	port := 0
	if addr, ok := p.listener.Addr().(*net.TCPAddr); ok {
		port = addr.Port
	}
	return address(role, port, database)
}

// SetMode decides from now on, for connections that are open as well.
func (p *Proxy) SetMode(m Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
}

// Delay holds back every message read from now on by d, in each direction. Up to 256 messages of a direction wait side by
// side, so it adds latency and hardly limits throughput. 0 is none.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// AfterNext loses one answer: that of the next request that runs a statement with match in its text or arguments, prepared
// earlier or not. The request reaches the server, its whole answer is swallowed, and when the server has
// said that it is done (so what was asked is applied, or was refused), do is called, unless it is nil, and the
// connection is closed. Answers to earlier requests arrive. A server that ends first has answered nothing: then do is
// not called. A second call replaces the first if that has not matched yet.
func (p *Proxy) AfterNext(match []byte, do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want, p.do = match, do
}

// Cut closes all connections now, clients' and server's. New ones are accepted as the mode says.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.end()
	}
}

// Close closes all connections and stops listening. It returns when no goroutine of the proxy is left.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut()
	p.serving.Wait()
	return err
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.serving.Go(func() { p.connect(client) })
	}
}

func (p *Proxy) connect(client net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if p.now() == Refuse {
		_ = client.Close()
		return
	}
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.to)
	if err != nil {
		_ = client.Close()
		return
	}
	c := &conn{proxy: p, client: client, server: server, talk: newDialogue(), ended: make(chan struct{})}
	p.mu.Lock()
	refused := p.over || len(p.conns) >= maxConnections
	p.conns[c] = struct{}{}
	p.mu.Unlock()
	if refused {
		c.end()
	}
	c.run()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// conn is one client's connection and the one to the server that stands for it.
type conn struct {
	proxy          *Proxy
	client, server net.Conn
	talk           *dialogue
	once           sync.Once
	ended          chan struct{}
	do             func() // what AfterNext asked for, once it has matched
}

func (c *conn) end() {
	c.once.Do(func() {
		close(c.ended)
		_ = c.client.Close()
		_ = c.server.Close()
	})
}

// due is a message and when it may go on.
type due struct {
	frame
	at time.Time
}

// run moves messages both ways until either side ends, or end is called.
func (c *conn) run() {
	var moving sync.WaitGroup
	direction := func(read func(chan<- due) error, forward func(frame) error) {
		queue := make(chan due, maxInFlight)
		moving.Go(func() {
			defer close(queue)
			_ = read(queue) // an end or a broken message: both end the connection, after what was read before
		})
		moving.Go(func() {
			defer c.end()
			for d := range queue {
				if !c.until(d.at) || forward(d.frame) != nil {
					return
				}
			}
		})
	}
	direction(c.readRequests, c.forwardRequest)
	direction(c.readReplies, c.forwardReply)
	moving.Wait()
}

// until waits for an instant; false says that the connection has ended.
func (c *conn) until(at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ended:
		return false
	}
}

func (c *conn) readRequests(queue chan<- due) error {
	r := bufio.NewReader(c.client)
	for started := false; !started; {
		f, code, err := readFirst(r)
		if err != nil {
			return err
		}
		started = c.talk.first(code)
		if err := c.put(queue, f); err != nil {
			return err
		}
	}
	for {
		f, err := readTyped(r)
		if err != nil {
			return err
		}
		if err := c.put(queue, f); err != nil {
			return err
		}
	}
}

func (c *conn) readReplies(queue chan<- due) error {
	r := bufio.NewReader(c.server)
	for {
		if _, err := r.Peek(1); err != nil {
			return err
		}
		f, err := c.readReply(r)
		if err != nil {
			return err
		}
		if err := c.put(queue, f); err != nil {
			return err
		}
	}
}

func (c *conn) readReply(r *bufio.Reader) (frame, error) {
	if !c.talk.negotiating() {
		return readTyped(r)
	}
	answer, err := r.ReadByte()
	if err == nil && answer != 'N' {
		err = errTLS
	}
	return frame{raw: []byte{answer}}, err
}

func (c *conn) put(queue chan<- due, f frame) error {
	c.proxy.mu.Lock()
	at := time.Now().Add(c.proxy.delay)
	c.proxy.mu.Unlock()
	select {
	case queue <- due{f, at}:
		return nil
	case <-c.ended:
		return net.ErrClosed
	}
}

func (c *conn) forwardRequest(f frame) error {
	if f.kind != 0 && c.proxy.asks(c, f) == Blackhole || f.kind == 0 && c.proxy.now() == Blackhole {
		return nil
	}
	_, err := c.server.Write(f.raw)
	return err
}

func (c *conn) forwardReply(f frame) error {
	lost, last := c.talk.reply(f)
	if last {
		c.proxy.mu.Lock()
		do := c.do
		c.proxy.mu.Unlock()
		if do != nil {
			do()
		}
		return io.EOF // the answer is lost for good: the connection ends
	}
	if mode := c.proxy.now(); lost || mode == DropReplies || mode == Blackhole {
		return nil
	}
	_, err := c.client.Write(f.raw)
	return err
}

func (p *Proxy) now() Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode
}

// asks notes a request, and that it is the one whose answer is to be lost.
func (p *Proxy) asks(c *conn, f frame) Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == Blackhole {
		return p.mode
	}
	if c.talk.request(f, p.want) {
		c.do, p.want, p.do = p.do, nil, nil
	}
	return p.mode
}
