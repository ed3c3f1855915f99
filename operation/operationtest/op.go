package operationtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// Op is one call of a history: exactly one of its fields is set. It speaks of attempts by their ordinal, never by number, so that one history runs on any store.
type Op struct {
	Submit   *operation.SubmitRequest
	Get      string // of the id
	Cancel   string // likewise
	Respond  *Report
	Claim    *operation.ClaimRequest
	Renew    *Renewal
	Complete []Report
	Expire   int // at most so many
	Due      *operation.DueRequest
	Inquired *operation.Inquiry
	Undone   *Undoing
	List     *operation.ListRequest
	Resolve  *operation.Verdict
	Prune    *operation.PruneRequest
	Stats    bool
	Advance  time.Duration // not 0
}

// Try names an attempt: the nth of an operation. 0 is none; one that never was has a number that is no one's.
type Try struct {
	ID string
	N  int
}

// Report is a completion, or evidence.
type Report struct {
	Try
	operation.Answer
	RetryIn time.Duration
}

// Renewal renews the claims of tries.
type Renewal struct {
	Tries []Try
	TTL   time.Duration
}

// Undoing says what undid an operation.
type Undoing struct{ ID, By string }

// String says what the call is, for a failure.
func (o Op) String() string {
	switch {
	case o.Submit != nil:
		r := o.Submit
		return fmt.Sprintf("submit %q of kind %q, request %q, priority %d, to run in %v, order %q, compensating %q", r.ID, r.Kind, r.Request, r.Priority, r.RunIn, r.Order, r.Compensates)
	case o.Get != "":
		return fmt.Sprintf("get %q", o.Get)
	case o.Cancel != "":
		return fmt.Sprintf("cancel %q", o.Cancel)
	case o.Respond != nil:
		return "respond of " + o.Respond.String()
	case o.Claim != nil:
		return fmt.Sprintf("claim %+v", *o.Claim)
	case o.Renew != nil:
		return fmt.Sprintf("renew %v for %v", o.Renew.Tries, o.Renew.TTL)
	case o.Complete != nil:
		all := []string{}
		for _, r := range o.Complete {
			all = append(all, r.String())
		}
		return "complete " + strings.Join(all, "; ")
	case o.Expire != 0:
		return fmt.Sprintf("expire at most %d", o.Expire)
	case o.Due != nil:
		return fmt.Sprintf("due %+v", *o.Due)
	case o.Inquired != nil:
		return fmt.Sprintf("inquired %q: finding %d, %q, %q, again in %v", o.Inquired.ID, o.Inquired.Finding, o.Inquired.Result, o.Inquired.Reason, o.Inquired.AskIn)
	case o.Undone != nil:
		return fmt.Sprintf("%q was undone by %q", o.Undone.ID, o.Undone.By)
	case o.List != nil:
		return fmt.Sprintf("list %+v", *o.List)
	case o.Resolve != nil:
		return fmt.Sprintf("resolve %q as %v, %q, %q", o.Resolve.ID, o.Resolve.State, o.Resolve.Result, o.Resolve.Reason)
	case o.Prune != nil:
		return fmt.Sprintf("prune %+v", *o.Prune)
	case o.Stats:
		return "statistics"
	}
	return fmt.Sprintf("advance by %v", o.Advance)
}

// String says what is reported, and of which attempt.
func (r Report) String() string {
	return fmt.Sprintf("attempt %d of %q: %v, %q, %q, final %t, again in %v", r.N, r.ID, r.Known, r.Result, r.Reason, r.Final, r.RetryIn)
}

// Reply is what a store answered to a call.
type Reply struct {
	Err     error
	Errs    []error            // Complete
	Known   bool               // Submit
	Records []operation.Record // one, or those of List and Due
	Jobs    []operation.Job    // Claim
	Lost    []operation.Ref    // Renew
	Count   int                // Expire
	Pruned  operation.Pruned   // Prune
	Stats   []operation.Stat   // Stats
}

// Player runs calls on a harness. It belongs to one goroutine.
type Player struct {
	h       Harness
	numbers map[string][]fence.Token // by id: of its attempts, by ordinal
	highest fence.Token
}

// NewPlayer starts on a fresh harness.
func NewPlayer(h Harness) *Player { return &Player{h: h, numbers: map[string][]fence.Token{}} }

func (p *Player) ref(t Try) operation.Ref {
	switch all := p.numbers[t.ID]; {
	case t.N == 0:
		return operation.Ref{ID: t.ID}
	case t.N <= len(all):
		return operation.Ref{ID: t.ID, Number: all[t.N-1]}
	}
	return operation.Ref{ID: t.ID, Number: p.highest + 1<<20}
}

// Play runs one call.
func (p *Player) Play(ctx context.Context, op Op) (r Reply) {
	store := p.h.Store()
	one := func(rec operation.Record, err error) Reply { return Reply{Records: []operation.Record{rec}, Err: err} }
	switch {
	case op.Submit != nil:
		sub, err := store.Submit(ctx, *op.Submit)
		r = one(sub.Record, err)
		r.Known = sub.Known
	case op.Get != "":
		r = one(store.Get(ctx, op.Get))
	case op.Cancel != "":
		r = one(store.Cancel(ctx, op.Cancel, "not wanted"))
	case op.Respond != nil:
		ref := p.ref(op.Respond.Try)
		r = one(store.Respond(ctx, operation.Response{ID: ref.ID, Number: ref.Number, Answer: op.Respond.Answer}))
	case op.Claim != nil:
		r.Jobs, r.Err = store.Claim(ctx, *op.Claim)
		p.learn(r.Jobs)
	case op.Renew != nil:
		req := operation.RenewRequest{TTL: op.Renew.TTL}
		for _, t := range op.Renew.Tries {
			req.Refs = append(req.Refs, p.ref(t))
		}
		r.Lost, r.Err = store.Renew(ctx, req)
	case op.Complete != nil:
		var all []operation.Completion
		for _, rep := range op.Complete {
			all = append(all, operation.Completion{Ref: p.ref(rep.Try), Answer: rep.Answer, RetryIn: rep.RetryIn})
		}
		r.Errs, r.Err = store.Complete(ctx, all)
	case op.Inquired != nil:
		r = one(store.Inquired(ctx, *op.Inquired))
	case op.Undone != nil:
		r = one(store.Undone(ctx, op.Undone.ID, op.Undone.By))
	case op.Resolve != nil:
		r = one(store.Resolve(ctx, *op.Resolve))
	default:
		return p.playMany(ctx, store, op)
	}
	return r
}

func (p *Player) playMany(ctx context.Context, store operation.Backend, op Op) (r Reply) {
	switch {
	case op.Expire != 0:
		r.Count, r.Err = store.Expire(ctx, op.Expire)
	case op.Due != nil:
		r.Records, r.Err = store.Due(ctx, *op.Due)
	case op.List != nil:
		r.Records, r.Err = store.List(ctx, *op.List)
	case op.Prune != nil:
		r.Pruned, r.Err = store.Prune(ctx, *op.Prune)
	case op.Stats:
		r.Stats, r.Err = store.Stats(ctx)
	default:
		r.Err = p.h.Advance(ctx, op.Advance)
	}
	return r
}

func (p *Player) learn(jobs []operation.Job) {
	for _, j := range jobs {
		if j.Ordinal == 1 { // the first, or the first after it was forgotten
			p.numbers[j.ID] = nil
		}
		p.numbers[j.ID] = append(p.numbers[j.ID], j.Number)
		p.highest = max(p.highest, j.Number)
	}
}
