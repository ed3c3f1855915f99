package drill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// actor plays one owner of the story on a real store. It speaks the store's contract directly, request by request: in the
// story nothing renews itself.
type actor struct {
	who    string
	store  lease.Store
	unit   time.Duration // of a story second
	name   string        // that is leased
	write  func(ctx context.Context, element string, claim fence.Claim, late bool) (model.Answer, error)
	read   func(ctx context.Context) ([]string, error)
	grants map[int]*grant
}

// grant is one grant of the story as its owner remembers it.
type grant struct {
	session fence.ID
	claim   fence.Claim
}

// played is what a step came to.
type played struct {
	outcome model.Outcome
	told    string      // what the store or the resource answered
	claim   fence.Claim // of a grant
	read    []string
}

// play carries out a step. foreign is the claim of another owner's grant, where the step acts under one.
func (a *actor) play(ctx context.Context, step model.Step, foreign fence.Claim) (played, error) {
	switch step.Do {
	case model.DoAcquire:
		return a.acquire(ctx, step)
	case model.DoRenew:
		return a.renew(ctx, step)
	case model.DoWrite:
		return a.writes(ctx, step, foreign)
	case model.DoRelease:
		return a.release(ctx, step)
	case model.DoRead:
		content, err := a.read(ctx)
		return played{outcome: model.Done, told: fmt.Sprintf("%q is read", content), read: content}, err
	default:
		return played{}, fmt.Errorf("%w: no owner does %q", ErrProcess, step.Says)
	}
}

// acquire opens a session, so that the TTL counts from here, and acquires under it.
func (a *actor) acquire(ctx context.Context, step model.Step) (played, error) {
	g := &grant{session: lease.NewID()}
	if _, err := a.store.Open(ctx, lease.OpenRequest{ID: g.session, Owner: a.who, TTL: time.Duration(step.TTL) * a.unit}); err != nil {
		return answer(err)
	}
	grants, err := a.store.Acquire(ctx, lease.AcquireRequest{Session: g.session, ID: lease.NewID(), Names: []string{a.name}})
	if err != nil {
		p, err := answer(err)
		return p, errors.Join(err, a.store.Close(ctx, g.session)) // it holds nothing
	}
	g.claim = grants[0].Claim
	a.grants[step.Grant] = g
	return played{outcome: model.Done, told: fmt.Sprintf("granted under token %d", g.claim.Token), claim: g.claim}, nil
}

// renew renews the session of a grant. A renewal carries no duration: the session's TTL is the one that a -1 would have to be.
func (a *actor) renew(ctx context.Context, step model.Step) (played, error) {
	if step.TTL <= 0 {
		_, err := a.store.Open(ctx, lease.OpenRequest{ID: lease.NewID(), Owner: a.who, TTL: time.Duration(step.TTL) * a.unit})
		return answer(err)
	}
	g, err := a.grant(step.Grant)
	if err != nil {
		return played{}, err
	}
	renewal, err := a.store.Renew(ctx, lease.RenewRequest{Session: g.session})
	if err != nil {
		return answer(err)
	}
	return played{outcome: model.Done, told: fmt.Sprintf("renewed, %v left", renewal.Remaining)}, nil
}

// writes sends a write; under another owner's grant it carries that one's token with this owner's acquisition.
func (a *actor) writes(ctx context.Context, step model.Step, foreign fence.Claim) (played, error) {
	claim := foreign
	if g, own := a.grants[step.Grant]; own {
		claim = g.claim
	} else if latest := slices.Max(append([]int{0}, slices.Collect(maps.Keys(a.grants))...)); latest > 0 {
		claim.Acquisition = a.grants[latest].claim.Acquisition
	}
	got, err := a.write(ctx, step.Value, claim, step.Want != model.Done)
	if err != nil {
		return played{}, err
	}
	if got.Accepted {
		return played{outcome: model.Done, told: "accepted"}, nil
	}
	told := "refused: " + got.Why
	if got.Newer > 0 {
		told += fmt.Sprintf(", token %d is newer than %d", got.Newer, got.Token)
	}
	return played{outcome: model.Refused, told: told}, nil
}

// release releases a grant and closes its session. A release of what is over is answered as such, or as done already.
func (a *actor) release(ctx context.Context, step model.Step) (played, error) {
	g, err := a.grant(step.Grant)
	if err != nil {
		return played{}, err
	}
	released, err := a.store.Release(ctx, lease.ReleaseRequest{Session: g.session, ID: g.claim.Acquisition, Names: []string{a.name}})
	switch {
	case err != nil:
		return answer(err)
	case released.Already:
		return played{outcome: model.Refused, told: "it was released before"}, nil
	}
	if err := a.store.Close(ctx, g.session); err != nil && !errors.Is(err, lease.ErrEnded) {
		return played{}, err
	}
	return played{outcome: model.Done, told: "released"}, nil
}

func (a *actor) grant(n int) (*grant, error) {
	if g := a.grants[n]; g != nil {
		return g, nil
	}
	return nil, fmt.Errorf("%w: %s has no grant %d", ErrProcess, a.who, n)
}

// answer puts a refusal by the store into the story's terms; any other error stays one.
func answer(err error) (played, error) {
	switch {
	case err == nil:
		return played{outcome: model.Done, told: "done"}, nil
	case errors.Is(err, lease.ErrInvalid):
		return played{outcome: model.Rejected, told: err.Error()}, nil
	case errors.Is(err, lease.ErrHeld), errors.Is(err, lease.ErrEnded):
		return played{outcome: model.Refused, told: err.Error()}, nil
	}
	return played{}, err
}

// step is the worker's part in the story.
func (w *worker) step(ctx context.Context, c command) (reply, error) {
	if c.Step == nil {
		return reply{}, fmt.Errorf("%w: no step", ErrProcess)
	}
	if w.actor == nil {
		w.actor = &actor{who: w.Name, store: w.net.Store, unit: ofMillis(c.TTL), name: c.Name, grants: map[int]*grant{},
			write: func(ctx context.Context, element string, claim fence.Claim, late bool) (model.Answer, error) {
				return w.res.write(ctx, writing{round: w.Round, writer: w.Name, element: element, claim: claim, late: late}, w.allow)
			},
			read: func(ctx context.Context) ([]string, error) { return w.res.read(ctx, w.Round) }}
	}
	var foreign fence.Claim
	if c.Claim != "" {
		var err error
		if foreign, err = fence.ParseClaim(c.Claim); err != nil {
			return reply{}, err
		}
	}
	p, err := w.actor.play(ctx, *c.Step, foreign)
	r := reply{Told: p.told, Content: p.read, Outcome: p.outcome}
	if p.claim.Token > 0 {
		r.Claim = p.claim.String()
	}
	return r, err
}
