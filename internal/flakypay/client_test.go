package flakypay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// rig is a provider that serves, and a client of its own.
type rig struct {
	*Provider
	client *http.Client
	base   string
	stop   func() error // ends the provider
}

func begin(t testing.TB, c Config, r rules) *rig {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if r.commit != nil {
		p.rules = r
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, listener) }()
	g := &rig{Provider: p, client: &http.Client{Transport: transport}, base: "http://" + listener.Addr().String()}
	ended := false
	g.stop = func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		transport.CloseIdleConnections()
		return <-served
	}
	t.Cleanup(func() {
		if err := g.stop(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// got is what a client has of an answer.
type got struct {
	status int
	header http.Header
	body   string
	Reply
	err error // there was none, or half of one
}

func (g got) number() int64 {
	n, _ := strconv.ParseInt(g.header.Get(HeaderAnswer), 10, 64)
	return n
}

func (g got) now() int64 {
	n, _ := strconv.ParseInt(g.header.Get(HeaderNow), 10, 64)
	return n
}

// do sends a request with pairs of headers.
func (g *rig) do(ctx context.Context, method, path, body string, headers ...string) (out got) {
	req, err := http.NewRequestWithContext(ctx, method, g.base+path, strings.NewReader(body))
	if err != nil {
		return got{err: err}
	}
	req.GetBody = nil // else net/http may repeat a request with an Idempotency-Key by itself
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := g.client.Do(req)
	if err != nil {
		return got{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	out = got{status: resp.StatusCode, header: resp.Header, body: string(text), err: err}
	if err == nil && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		out.err = json.Unmarshal(text, &out.Reply)
	}
	return out
}

func (g *rig) charge(ctx context.Context, key string, amount int, headers ...string) got {
	return g.do(ctx, http.MethodPost, "/charges", fmt.Sprintf(`{"amount":%d}`, amount), append([]string{HeaderKey, key}, headers...)...)
}

func (g *rig) refund(ctx context.Context, key, charge string, headers ...string) got {
	return g.do(ctx, http.MethodPost, "/refunds", fmt.Sprintf(`{"charge":%q}`, charge), append([]string{HeaderKey, key}, headers...)...)
}

func (g *rig) find(ctx context.Context, key string) got {
	return g.do(ctx, http.MethodGet, "/charges?key="+url.QueryEscape(key), "")
}

func (g *rig) closeKey(ctx context.Context, key string) got {
	return g.do(ctx, http.MethodPost, "/charges/close?key="+url.QueryEscape(key), "")
}

func (g *rig) acknowledge(ctx context.Context, op Op, key string, n int64) error {
	out := g.do(ctx, http.MethodPost, fmt.Sprintf("/received?op=%s&key=%s&answer=%d", op, url.QueryEscape(key), n), "")
	if out.err == nil && out.status != http.StatusOK {
		return fmt.Errorf("%d %s", out.status, out.body)
	}
	return out.err
}

// started sends a charge and returns where its answer will be, once it has come to the gate.
func (g *rig) started(ctx context.Context, gate string, send func() got) (<-chan got, error) {
	answer := make(chan got, 1)
	go func() { answer <- send() }()
	select {
	case <-g.Reached(gate):
		return answer, nil
	case early := <-answer:
		return nil, fmt.Errorf("answered before the gate: %d %s %w", early.status, early.body, errors.Join(early.err))
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// awaitDelivery waits until the ledger says so of the key's latest answer: the provider records it after the client may have it.
func awaitDelivery(ctx context.Context, l *Ledger, key string, want func(Entry) bool) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		e := l.Entry(Charge, key)
		if want(e) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %+v: %w", key, e, ctx.Err())
		}
	}
}

// remote is a client of a provider in another process.
func remote(base string) *rig {
	return &rig{client: &http.Client{Transport: &http.Transport{}}, base: base}
}
