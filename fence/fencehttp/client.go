package fencehttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
)

type sendKey struct{}

// WithClaim returns a context whose requests a [Transport] sends under the claim. It has nothing to do with the claim under which a
// request is being served ([ClaimFrom]): passing that one on is a decision, made by calling both.
func WithClaim(ctx context.Context, claim fence.Claim) context.Context {
	return context.WithValue(ctx, sendKey{}, claim)
}

// ClaimToSend returns the claim of [WithClaim].
func ClaimToSend(ctx context.Context) (fence.Claim, bool) {
	claim, ok := ctx.Value(sendKey{}).(fence.Claim)
	return claim, ok
}

// Transport is an [http.RoundTripper] that sends claims. Its fields must not be changed once it is in use; then it is safe for
// concurrent use.
type Transport struct {
	// Base sends the requests; nil: http.DefaultTransport.
	Base http.RoundTripper
	// Hosts are the hosts that may see a claim, as in a URL: "orders.example:8443", with a port where the URL has one. No other host is sent one.
	Hosts []string
	// Claim finds the claim for a request's context; nil: [ClaimToSend]. A lease's own Claim refuses once the lease is over, which
	// spares the way to the resource: ask it there.
	Claim func(ctx context.Context) (fence.Claim, bool)
}

// RoundTrip sends the request with the claim, if there is one and the host is named in Hosts, and without any otherwise. A request that
// follows a redirect to another host than the one that redirected carries none. A refusal is a response: see [ErrorOf].
// It returns an error matching [fence.ErrInvalid], sending nothing, for a claim that is none.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base, find := t.Base, t.Claim
	if base == nil {
		base = http.DefaultTransport
	}
	if find == nil {
		find = ClaimToSend
	}
	out := r.Clone(r.Context())
	out.Header.Del(ClaimHeader)
	if t.mayTell(r) {
		if claim, ok := find(r.Context()); ok {
			if err := claim.Check(); err != nil {
				return nil, errors.Join(err, closeBody(r))
			}
			out.Header.Set(ClaimHeader, claim.String())
		}
	}
	return base.RoundTrip(out)
}

func closeBody(r *http.Request) error {
	if r.Body == nil {
		return nil
	}
	return r.Body.Close()
}

// mayTell reports whether the host may see a claim.
func (t *Transport) mayTell(r *http.Request) bool {
	if r.Response != nil && r.Response.Request != nil && !strings.EqualFold(r.Response.Request.URL.Host, r.URL.Host) {
		return false
	}
	return slices.ContainsFunc(t.Hosts, func(host string) bool { return strings.EqualFold(host, r.URL.Host) })
}

// maxProblem bounds what is read of a refusal.
const maxProblem = 64 << 10

// ErrorOf is the refusal that a response tells, or nil where it tells none: whatever else a response may be, its status is for the caller
// to judge. It is a [*fence.RefusedError], [*fence.ForeignError], [*fence.AheadError] or [*fence.InvalidError], or an error
// matching [ErrMissing], [ErrBusy], [ErrFull], [ErrResource] or [ErrUnavailable]; after each of them the request was not let in.
// The body can be read afterwards as if nobody had.
func ErrorOf(resp *http.Response) error {
	p, ok := problemOf(resp)
	if !ok {
		return nil
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		p.after = time.Duration(min(seconds, int(maxAfter/time.Second))) * time.Second
	}
	var claim fence.Claim
	if resp.Request != nil {
		claim, _ = fence.ParseClaim(resp.Request.Header.Get(ClaimHeader)) // it is for the error's text
	}
	return p.Err(claim)
}

// problemOf reads the body of a refusal, and puts back what it has read.
func problemOf(resp *http.Response) (p Problem, ok bool) {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != ProblemType || resp.Body == nil {
		return p, false
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), again(resp.Body, err)), resp.Body}
	if err != nil || json.Unmarshal(text, &p) != nil {
		return p, false
	}
	return p, p.Type == problemBase+string(p.Code) && p.Status == resp.StatusCode
}

// maxAfter bounds what a Retry-After is believed.
const maxAfter = time.Hour

// again is what is left of a body, or the error that reading it ended with.
func again(body io.Reader, err error) io.Reader {
	if err == nil {
		return body
	}
	return failing{err}
}

type failing struct{ err error }

// Read fails.
func (f failing) Read([]byte) (int, error) { return 0, f.err }
