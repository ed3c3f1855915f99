package outboxtest

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// Op is one call of a history: exactly one of its fields is set. Messages are named by their ids, because positions are each store's own.
type Op struct {
	Append  []outbox.Message // each with an id
	Claim   *outbox.ClaimRequest
	Settle  *Settlement
	Get     fence.ID
	List    *Listing
	Topics  *string // after it
	Pause   *outbox.PauseRequest
	Retry   *Moving
	Replay  *Moving
	Prune   *outbox.PruneRequest // with a limit that does not bind
	Advance time.Duration        // not 0
}

// Settlement says what became of messages.
type Settlement struct {
	Claim    fence.ID
	Relay    string
	IDs      []fence.ID
	Verdicts []outbox.Verdict // of the ids, without positions
}

// Listing asks for messages after one.
type Listing struct {
	outbox.ListRequest
	After fence.ID
}

// Moving names messages from one to another, with a limit that does not bind.
type Moving struct {
	outbox.MoveRequest
	From, To fence.ID
}

// String says what the call is, for a failure.
func (o Op) String() string {
	switch {
	case o.Append != nil:
		return fmt.Sprintf("append %+v", o.Append)
	case o.Claim != nil:
		return fmt.Sprintf("claim %+v", *o.Claim)
	case o.Settle != nil:
		return fmt.Sprintf("settle %+v", *o.Settle)
	case !o.Get.IsZero():
		return fmt.Sprintf("get %v", o.Get)
	case o.List != nil:
		return fmt.Sprintf("list %+v", *o.List)
	case o.Topics != nil:
		return fmt.Sprintf("topics after %q", *o.Topics)
	case o.Pause != nil:
		return fmt.Sprintf("pause %+v", *o.Pause)
	case o.Retry != nil:
		return fmt.Sprintf("retry %+v", *o.Retry)
	case o.Replay != nil:
		return fmt.Sprintf("replay %+v", *o.Replay)
	case o.Prune != nil:
		return fmt.Sprintf("prune %+v", *o.Prune)
	}
	return fmt.Sprintf("advance by %v", o.Advance)
}

// Reply is what a store answered to a call.
type Reply struct {
	Err    error
	IDs    []fence.ID // Append
	Batch  outbox.Batch
	Dead   []fence.ID // that Claim has given up
	Late   []fence.ID
	Infos  []outbox.Info // one, or those of List
	Topics []outbox.TopicInfo
	Count  int // applied, moved or forgotten
}

// positions of all messages of a store.
func positions(ctx context.Context, h Harness) (map[fence.ID]int64, map[int64]fence.ID, map[fence.ID]bool, error) {
	at, of, dead := map[fence.ID]int64{}, map[int64]fence.ID{}, map[fence.ID]bool{}
	for after, more := int64(0), true; more; {
		page, err := h.Office().List(ctx, outbox.ListRequest{After: after, Limit: outbox.MaxList})
		if err != nil {
			return nil, nil, nil, fmt.Errorf("listing everything: %w", err)
		}
		for i := range page {
			at[page[i].ID], of[page[i].Position] = page[i].Position, page[i].ID
			dead[page[i].ID] = page[i].State == outbox.Dead
			after = page[i].Position
		}
		more = len(page) == outbox.MaxList
	}
	return at, of, dead, nil
}

// nowhere is a position that no message has.
const nowhere = int64(1) << 62

// Play runs one call on a harness.
func Play(ctx context.Context, h Harness, op Op) (r Reply) {
	at, of, was, err := positions(ctx, h)
	if err != nil {
		return Reply{Err: err}
	}
	store, office := h.Store(), h.Office()
	move := func(m *Moving, move func(context.Context, outbox.MoveRequest) (int, error)) (int, error) {
		req := m.MoveRequest
		req.From, req.To = at[m.From], at[m.To]
		return move(ctx, req)
	}
	switch {
	case op.Append != nil:
		r.IDs, r.Err = store.Append(ctx, op.Append)
	case op.Claim != nil:
		r = claim(ctx, h, *op.Claim, was)
	case op.Settle != nil:
		r = settle(ctx, store, op.Settle, at, of)
	case !op.Get.IsZero():
		var i outbox.Info
		if i, r.Err = office.Get(ctx, op.Get); r.Err == nil {
			r.Infos = []outbox.Info{i}
		}
	case op.List != nil:
		req := op.List.ListRequest
		req.After = at[op.List.After]
		r.Infos, r.Err = office.List(ctx, req)
	case op.Topics != nil:
		r.Topics, r.Err = office.Topics(ctx, *op.Topics)
	case op.Pause != nil:
		r.Err = office.Pause(ctx, *op.Pause)
	case op.Retry != nil:
		r.Count, r.Err = move(op.Retry, office.Retry)
	case op.Replay != nil:
		r.Count, r.Err = move(op.Replay, office.Replay)
	case op.Prune != nil:
		r.Count, r.Err = office.Prune(ctx, *op.Prune)
	default:
		r.Err = h.Advance(ctx, op.Advance)
	}
	return r
}

func claim(ctx context.Context, h Harness, req outbox.ClaimRequest, was map[fence.ID]bool) (r Reply) {
	if r.Batch, r.Err = h.Store().Claim(ctx, req); r.Err != nil {
		return r
	}
	_, of, now, err := positions(ctx, h)
	if err != nil {
		return Reply{Err: err}
	}
	for _, position := range sorted(of) {
		if id := of[position]; now[id] && !was[id] {
			r.Dead = append(r.Dead, id)
		}
	}
	return r
}

func settle(ctx context.Context, store outbox.Store, s *Settlement, at map[fence.ID]int64, of map[int64]fence.ID) (r Reply) {
	req := outbox.SettleRequest{Claim: s.Claim, Relay: s.Relay}
	for i, v := range s.Verdicts {
		v.Position = at[s.IDs[i]]
		if v.Position == 0 {
			v.Position = nowhere + int64(i)
		}
		req.Verdicts = append(req.Verdicts, v)
	}
	done, err := store.Settle(ctx, req)
	r.Count, r.Err = done.Applied, err
	for _, position := range done.Late {
		r.Late = append(r.Late, of[position])
	}
	return r
}
