package operationhttp

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// The headers.
const (
	KeyHeader      = "Idempotency-Key"
	ReplayedHeader = "Idempotency-Replayed"
)

// Limits.
const (
	MaxKey    = 128                   // bytes of a key
	MaxScope  = 64                    // bytes of a scope
	MaxAnswer = operation.MaxBody / 2 // bytes of an answer's body that is kept; it is stored as text
)

// Store is what the middleware needs of a store of operations.
type Store interface {
	Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error)
	Get(ctx context.Context, id string) (operation.Record, error)
	Respond(ctx context.Context, resp operation.Response) (operation.Record, error)
	Claim(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error)
	Complete(ctx context.Context, all []operation.Completion) ([]error, error)
	Expire(ctx context.Context, limit int) (int, error)
}

// Options configures [New].
type Options struct {
	// Kind of the operations, such as "http". Default "http". The id of an operation is KIND:SCOPE:KEY.
	Kind string
	// Scope is whose key it is: the authenticated caller, such as a tenant's id: at most MaxScope bytes, without a colon. An error is answered with 403. Required; see [Everybody].
	Scope func(*http.Request) (string, error)
	// Methods to which the middleware applies; others pass. Default POST and PATCH.
	Methods []string
	// Optional lets a request without a key pass. Default: it is 400.
	Optional bool
	// MaxBody is the largest body of a request, in bytes. Default 1 MiB. It is read whole before the handler runs.
	MaxBody int64
	// Timeout of a handler: its context ends, and from then on the outcome of a silent one is unknown. That the caller goes does not end it. Default 30 s; at most an hour.
	Timeout time.Duration
	// Window is how long after its first attempt a handler may safely run again where the outcome of an attempt is unknown, because whatever it does is known by the same key.
	// Default 0: never. [operation.Forever]: always.
	Window time.Duration
	// Known is what a status says. Default [StatusKnown].
	Known func(status int) operation.Known
	// Worker is the label of the attempts, to which a random text is added, by which an attempt is known for that of its request. Default none. Of a long one the beginning is taken.
	Worker string
	// Logger gets what a caller cannot be told. Default: none.
	Logger *slog.Logger
}

// Everybody is a scope for a service whose callers may see each other's answers.
func Everybody(*http.Request) (string, error) { return "", nil }

// StatusKnown is what a status says by default: 429 that nothing was done, for now; any from 500 that nobody knows; and everything else is an answer. 503 is among those that nobody knows: [http.TimeoutHandler] answers with it
// while the handler is still at work, and many a handler does after half of its work. A service whose 503 always means that nothing was done says so with [Options.Known].
func StatusKnown(status int) operation.Known {
	switch {
	case status == http.StatusTooManyRequests:
		return operation.NotSent
	case status >= 500:
		return operation.NoAnswer
	}
	return operation.Effective
}

func (o Options) complete() (Options, error) {
	if o.Kind == "" {
		o.Kind = "http"
	}
	if len(o.Methods) == 0 {
		o.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if o.MaxBody == 0 {
		o.MaxBody = 1 << 20
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Known == nil {
		o.Known = StatusKnown
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Scope == nil:
		return o, fmt.Errorf("%w: no Scope: whose is a key? A service whose callers may see each other's answers says Everybody", ErrOptions)
	case o.MaxBody < 0:
		return o, fmt.Errorf("%w: MaxBody is %d", ErrOptions, o.MaxBody)
	case slices.Contains(o.Methods, http.MethodGet) || slices.Contains(o.Methods, http.MethodHead):
		return o, fmt.Errorf("%w: GET and HEAD have no effect to protect", ErrOptions)
	}
	claim := o.claim("x")
	if err := claim.Check(); err != nil {
		return o, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return o, nil
}

// claim asks for one operation, for as long as its handler may run.
func (o Options) claim(id string) operation.ClaimRequest {
	label := strings.TrimSpace(o.Worker[:min(len(o.Worker), operation.MaxWorker-32)] + " " + rand.Text())
	return operation.ClaimRequest{Worker: strings.ToValidUTF8(label, ""), TTL: o.Timeout, Limit: 1, ID: id, Kinds: []operation.KindClaim{
		{Kind: o.Kind, Limit: 1, Timeout: o.Timeout, Window: o.Window, MaxAttempts: operation.MaxAttempts},
	}}
}
