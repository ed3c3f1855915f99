package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/tenure-go/tenure/fence/fencehttp"
)

const problemBase = "https://github.com/tenure-go/tenure/tree/main/internal/upstream#"

// problem is an answer of the guard's own, which is no refusal of a claim.
func problem(status int, code, resource, detail string) fencehttp.Problem {
	return fencehttp.Problem{Type: problemBase + code, Title: http.StatusText(status), Status: status, Code: fencehttp.Code(code), Resource: resource,
		Detail: "guard: " + detail}
}

func (g *Guard) answer(w http.ResponseWriter, r *http.Request, p fencehttp.Problem) {
	g.c.Log.Warn("refused a request", "code", string(p.Code), "method", r.Method, "resource", p.Resource, "detail", p.Detail)
	if err := p.Respond(w); err != nil && r.Context().Err() == nil {
		g.c.Log.Warn("answering a request", "error", err)
	}
}

// failed answers a request that was let in, and to which the service gave no answer. What the service did is known
// only where no connection to it could be made.
func (g *Guard) failed(w http.ResponseWriter, r *http.Request, err error) {
	resource := found(r).resource
	level := g.c.Log.Warn
	var p fencehttp.Problem
	var op *net.OpError
	var sent *sentError
	switch {
	case errors.As(err, &op) && op.Op == "dial" && !errors.As(err, &sent):
		level = g.c.Log.Error
		p = problem(http.StatusBadGateway, "upstream-not-reached", resource, "the service was not reached; nothing was passed on; try again")
	case errors.Is(err, errTooLong), errors.Is(context.Cause(r.Context()), errTooLong):
		p = problem(http.StatusGatewayTimeout, "upstream-silent", resource, "the service did not answer in time, and may still do what was asked; look at it before you ask again")
	case errors.Is(r.Context().Err(), context.Canceled) && errors.Is(context.Cause(r.Context()), context.Canceled):
		level = g.c.Log.Info // the client has gone, and reads no answer
		p = problem(http.StatusBadGateway, "gone", resource, "the client went away; the service may still do what was asked")
	case r.Context().Err() != nil:
		p = problem(http.StatusGatewayTimeout, "lease-over", resource, "the lease ended before the service had answered; it may still do what was asked; look at it before you ask again")
	default:
		p = problem(http.StatusBadGateway, "upstream", resource, "the service broke off without an answer, and may have done what was asked; look at it before you ask again")
	}
	level("no answer of the service", "code", string(p.Code), "method", r.Method, "resource", resource, "error", err)
	if err := p.Respond(w); err != nil && r.Context().Err() == nil {
		g.c.Log.Warn("answering a request", "error", err)
	}
}
