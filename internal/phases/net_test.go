//go:build unix

package phases

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// listen is a socket of this test on loopback.
func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// nobody is an address where nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	l := listen(t)
	l.Close()
	return l.Addr().String()
}

// serve hands each connection to do, until the test ends.
func serve(t *testing.T, do func(*net.TCPConn)) string {
	t.Helper()
	l := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.AcceptTCP()
			if err != nil {
				return
			}
			do(conn)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// silent is an address where connections are accepted and nothing is ever said.
func silent(t *testing.T) string {
	t.Helper()
	return serve(t, func(conn *net.TCPConn) { t.Cleanup(func() { conn.Close() }) })
}

// resetting is an address where connections are accepted, and reset once something was read.
func resetting(t *testing.T) string {
	t.Helper()
	return serve(t, func(conn *net.TCPConn) {
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.SetLinger(0)
		conn.Close()
	})
}

// full is an address whose listener does not accept and whose queue is full: connecting to it gets no answer.
func full(t *testing.T) string {
	t.Helper()
	l := listen(t)
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.Listen(int(fd), 0) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	const most = 64 // connections that such a queue may hold
	for range most {
		conn, err := net.DialTimeout("tcp", l.Addr().String(), 200*time.Millisecond)
		if err != nil {
			return l.Addr().String()
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatalf("a queue of 0 holds more than %d connections", most)
	return ""
}

// silentDNS is the address of a name server that never answers.
func silentDNS(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0") //nolint:noctx // it returns at once
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.LocalAddr().String()
}

// resolver asks the name server at an address, whatever the machine's own is.
func resolver(server string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server)
	}}
}

// proxy stands on real connections to a service, and does to them what it is told.
type proxy struct {
	t *testing.T
	*toxiproxy.Proxy
	n int
}

func newProxy(t *testing.T, upstream string) *proxy {
	t.Helper()
	p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), t.Name(), "127.0.0.1:0", upstream)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return &proxy{t: t, Proxy: p}
}

// What a proxy may do to what clients send ("upstream") or services answer ("downstream").
const (
	swallow  = `"type":"timeout","attributes":{"timeout":0}`       // all is read, and lost
	stall    = `"type":"bandwidth","attributes":{"rate":20}`       // 20 KB/s: what is large does not come to its end
	reset    = `"type":"reset_peer","attributes":{"timeout":400}`  // 400 ms after something came
	cutShort = `"type":"limit_data","attributes":{"bytes":100000}` // then it ends
)

// does makes the proxy do something from now on, also to connections that are open.
func (p *proxy) does(stream, what string) {
	p.t.Helper()
	p.n++
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name":"t%d","stream":%q,%s}`, p.n, stream, what))); err != nil {
		p.t.Fatal(err)
	}
}
