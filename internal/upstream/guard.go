package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/fence/fencehttp"
)

// Config is what a guard stands in front of, and how it decides.
type Config struct {
	// Upstream is the service: http or https, a host, and perhaps a path that goes before that of every request.
	Upstream *url.URL
	// Check decides about claims. Turns lets one request a resource through at a time; nil: any number.
	Check fencehttp.Check
	Turns *fencehttp.Serializer
	// Rule says what a request is about, see [ParseRule].
	Rule Rule
	// Only are the paths that are protected, with all below them; none: all are.
	Only []string
	// NamePrefix stands before the resource in the name of the lease that guards it.
	NamePrefix string

	// Timeout bounds how long a client of a protected resource waits for the service once it was let in; it must be positive.
	Timeout time.Duration
	// GiveUp bounds how long a turn is kept for a service that does not answer; 0: for as long as the connection to it stands.
	GiveUp time.Duration
	// MaxBody is the largest body, in bytes, of a request to a protected resource; it must be positive. It is held in memory.
	MaxBody int64
	// PassClaim passes the claim on to the service, TrustForwarded what an earlier proxy said of the client.
	PassClaim, TrustForwarded bool
	// Log hears of what is refused or goes wrong; nil: nobody.
	Log *slog.Logger
}

func (c *Config) check() error {
	switch {
	case c.Upstream == nil || c.Upstream.Scheme != "http" && c.Upstream.Scheme != "https" || c.Upstream.Host == "":
		return fmt.Errorf("%w: the service is named by a URL as in http://127.0.0.1:8080", ErrOption)
	case c.Upstream.RawQuery != "" || c.Upstream.Fragment != "" || c.Upstream.User != nil:
		return fmt.Errorf("%w: the service's URL is a host and a path, with neither a query nor a user", ErrOption)
	case c.Check == nil:
		return fmt.Errorf("%w: nothing checks the claims", ErrOption)
	case c.Timeout <= 0 || c.GiveUp < 0 || c.MaxBody <= 0:
		return fmt.Errorf("%w: a bound is not positive", ErrOption)
	}
	for _, prefix := range c.Only {
		if !strings.HasPrefix(prefix, "/") || path.Clean(prefix) != prefix {
			return fmt.Errorf("%w: %q is no path as in /orders", ErrOption, prefix)
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Guard is the handler. Safe for concurrent use.
type Guard struct {
	c     Config
	plain http.Handler // to the service, of what is not protected
	door  http.Handler
	calls *calls

	active atomic.Int64 // requests whose clients wait for the service
}

// New returns an error matching [ErrOption] for a config that makes no sense.
func New(c Config) (*Guard, error) { return build(c, c.Turns != nil) }

// build makes a guard; with outlive, calls to the service have their turn until it has answered.
func build(c Config, outlive bool) (*Guard, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	g := &Guard{c: c, calls: newCalls(c.GiveUp, c.Log)}
	base := newTransport()
	g.calls.base = base
	g.plain = g.proxy(noting{base})
	var through http.RoundTripper = noting{base}
	if outlive {
		through = g.calls
	}
	timed := g.timed(g.proxy(through))
	var err error
	g.door, err = fencehttp.Protect(timed, fencehttp.Options{
		GateOptions: fencehttp.GateOptions{Check: c.Check, Turns: c.Turns, Name: func(resource string) string { return c.NamePrefix + resource }},
		Resource:    func(r *http.Request) (string, bool, error) { return found(r).resource, found(r).protected, nil },
		Log:         c.Log,
	})
	return g, err
}

// newTransport goes straight to the service, and leaves bodies as they are.
func newTransport() *http.Transport {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		t = &http.Transport{}
	}
	t = t.Clone()
	t.Proxy, t.DisableCompression, t.MaxIdleConnsPerHost = nil, true, 32
	return t
}

// about is what a request was found to be about, before its body was read.
type about struct {
	resource  string
	protected bool
}

type aboutKey struct{}

func found(r *http.Request) about {
	a, _ := r.Context().Value(aboutKey{}).(about)
	return a
}

// ServeHTTP passes the request on, or answers it with a problem.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := g.about(r)
	switch {
	case err != nil:
		g.answer(w, r, fencehttp.ProblemOf("", err))
	case r.Method == http.MethodConnect:
		g.answer(w, r, problem(http.StatusMethodNotAllowed, "connect", "", "this is no proxy to other hosts; nothing was passed on"))
	case !a.protected && len(r.Header.Values(fencehttp.ClaimHeader)) == 0 && upgradesWithin(r):
		g.plain.ServeHTTP(w, r)
	case len(valuesOf(r.Header, "Upgrade")) > 0:
		g.answer(w, r, problem(http.StatusNotImplemented, "upgrade", a.resource,
			"on a connection of another protocol no claim can be checked, so none is opened to a protected resource, and none on which any resource can be asked for; nothing was passed on"))
	default:
		g.checked(w, r.WithContext(context.WithValue(r.Context(), aboutKey{}, a)))
	}
}

// upgradesWithin reports whether the connection that a request asks for, if any, stays with the path of the request. That of a websocket
// does; on one of another HTTP (h2c) any request can be sent.
func upgradesWithin(r *http.Request) bool {
	to := valuesOf(r.Header, "Upgrade")
	return len(to) == 0 || len(to) == 1 && strings.EqualFold(to[0], "websocket")
}

// about finds out what a request is about. A path that can be spelled in another way is an error also where it seems
// not to be protected, because the service may take it for one that is.
func (g *Guard) about(r *http.Request) (about, error) {
	if r.URL.Opaque != "" { // PUT http:http://host/orders/7: it has no path here, and would have one at the service
		return about{}, &fencehttp.ResourceError{Problem: "the target of the request is no path; send the plain one"}
	}
	onPath, protected, err := fencehttp.PathResource(0)(r)
	if err != nil {
		return about{}, err
	}
	if protected && len(g.c.Only) > 0 {
		protected = slices.ContainsFunc(g.c.Only, func(prefix string) bool {
			return prefix == "/" || "/"+onPath == prefix || strings.HasPrefix("/"+onPath, prefix+"/")
		})
	}
	if !protected && len(r.Header.Values(fencehttp.ClaimHeader)) == 0 {
		return about{}, nil
	}
	resource, err := g.c.Rule.resource(r)
	return about{resource: resource, protected: protected}, err
}

// checked reads the body, and lets the request to the door. Its answer has to be taken in time, so that who reads slowly ends its turn.
func (g *Guard) checked(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(g.c.Timeout)) // a server that cannot has bounds of its own
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, g.c.MaxBody))
	_ = control.SetReadDeadline(time.Time{})
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		g.answer(w, r, problem(http.StatusRequestEntityTooLarge, "body", found(r).resource,
			fmt.Sprintf("the body is larger than %d bytes; nothing was passed on", g.c.MaxBody)))
		return
	case err != nil:
		g.answer(w, r, problem(http.StatusBadRequest, "body", found(r).resource, "the body did not arrive; nothing was passed on"))
		return
	}
	r.ContentLength, r.TransferEncoding = int64(len(body)), nil
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	if r.Body, err = r.GetBody(); err != nil || len(body) == 0 {
		r.Body = http.NoBody
	}
	g.door.ServeHTTP(w, r)
}

// timed bounds how long a client waits for the service.
func (g *Guard) timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.active.Add(1)
		defer g.active.Add(-1)
		ctx, cancel := context.WithTimeoutCause(r.Context(), g.c.Timeout, errTooLong)
		defer cancel()
		const toSay = 5 * time.Second // that it took too long
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(g.c.Timeout + toSay))
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// proxy passes requests on to the service.
func (g *Guard) proxy(through http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(g.c.Upstream)
			for header := range p.Out.Header { // some services go by these, and not by the path that was checked
				if sameHeader(header, "X-Original-Url") || sameHeader(header, "X-Rewrite-Url") {
					delete(p.Out.Header, header)
				}
			}
			p.Out.URL.RawQuery = p.In.URL.RawQuery // nothing is decided by it here, so it stays as it came
			if g.c.TrustForwarded {
				for _, header := range []string{"X-Forwarded-For", "Forwarded"} {
					p.Out.Header[header] = p.In.Header[header]
				}
			}
			p.SetXForwarded()
			if g.c.TrustForwarded {
				for _, header := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
					if said := p.In.Header.Get(header); said != "" {
						p.Out.Header.Set(header, said)
					}
				}
			}
			if !g.c.PassClaim {
				p.Out.Header.Del(fencehttp.ClaimHeader)
			}
		},
		Transport:    through,
		ErrorHandler: g.failed,
		ErrorLog:     slog.NewLogLogger(g.c.Log.Handler(), slog.LevelDebug),
	}
}

// Wait returns when the service is at work on nothing that a client stopped waiting for; an error matching [ErrLeftBehind] if ctx
// ends before. Nobody sends requests any more.
func (g *Guard) Wait(ctx context.Context) error { return g.calls.wait(ctx) }

// Close ends the connections to the service that are idle.
func (g *Guard) Close() { g.calls.base.CloseIdleConnections() }
