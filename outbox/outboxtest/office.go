package outboxtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// told checks what is told of a message against what had been told before the call began.
func (w *watch) told(began, moved int, i *outbox.Info, bodies bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := checkInfo(i, bodies); err != nil {
		w.faultLocked("%w", err)
	}
	k := w.tellsLocked(&i.Message, bodies)
	w.placedLocked(k, i.Position)
	if k.final != 0 && k.since < began && i.State != k.final && w.moved == moved {
		w.faultLocked("%v was told as %v, and is told as %v", k.id, k.final, i.State)
	}
}

// checkInfo demands what must hold of every message that is told, whatever came before.
func checkInfo(i *outbox.Info, bodies bool) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%v is %v and %w: %+v", i.ID, i.State, fmt.Errorf(format, args...), *i)
	}
	pending := i.State == outbox.Pending
	switch {
	case i.State < outbox.Pending || i.State > outbox.Dead:
		return wrong("that is no state")
	case i.ID.IsZero() || i.Topic == "" || i.Position <= 0:
		return wrong("has no id, topic or position")
	case !bodies && (i.Headers != nil || i.Payload != nil):
		return wrong("has headers or a payload, which were not asked for")
	case bodies && i.Bytes != len(i.Payload):
		return wrong("has %d bytes, and a payload of %d", i.Bytes, len(i.Payload))
	case i.Attempts < 0 || i.Age < 0 || i.Ended < 0 || pending && i.Ended != 0 || i.Ended > i.Age+rounded:
		return wrong("has been tried %d times, is %v old and ended %v ago", i.Attempts, i.Age, i.Ended)
	case !pending && (i.Claimed != 0 || i.DueIn != 0) || i.Claimed < 0 || i.Claimed > outbox.MaxTTL || i.DueIn < 0 || i.DueIn > outbox.MaxRetryIn:
		return wrong("is claimed for %v and due in %v", i.Claimed, i.DueIn)
	case len(i.Errors) > outbox.KeptErrors:
		return wrong("has %d errors", len(i.Errors))
	}
	for n, f := range i.Errors {
		if len(f.Text) > outbox.MaxError || f.Attempt < 1 || f.Age < 0 || n > 0 && f.Age > i.Errors[n-1].Age+rounded {
			return wrong("has the error %d of attempt %d, %v ago, of %d bytes", n, f.Attempt, f.Age, len(f.Text))
		}
	}
	return nil
}

func (w *watch) looks() (began, moved int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stepLocked(), w.moved
}

func (w *watch) Get(ctx context.Context, id fence.ID) (outbox.Info, error) {
	began, moved := w.looks()
	i, err := w.h.Office().Get(ctx, id)
	if err != nil {
		return i, err
	}
	if i.ID != id {
		w.fault("asked for %v, and told of %v", id, i.ID)
	}
	w.told(began, moved, &i, true)
	return i, nil
}

func (w *watch) List(ctx context.Context, req outbox.ListRequest) ([]outbox.Info, error) {
	began, moved := w.looks()
	all, err := w.h.Office().List(ctx, req)
	if err == nil && len(all) > req.Limit {
		w.fault("%d messages were listed, with a limit of %d", len(all), req.Limit)
	}
	last := req.After
	for i := range all {
		w.told(began, moved, &all[i], req.Bodies)
		if all[i].Position <= last {
			w.fault("position %d is listed after %d", all[i].Position, last)
		}
		last = all[i].Position
	}
	return all, err
}

func (w *watch) Topics(ctx context.Context, after string) ([]outbox.TopicInfo, error) {
	all, err := w.h.Office().Topics(ctx, after)
	for n, t := range all {
		if t.Pending < 0 || t.Dead < 0 || t.Oldest < 0 || t.Pending == 0 && (t.Oldest != 0 || t.Dead == 0 && !t.Paused) || !t.Paused && t.Reason != "" || n > 0 && t.Topic <= all[n-1].Topic || after != "" && t.Topic <= after {
			w.fault("topics after %q: %+v", after, all)
		}
	}
	return all, err
}

func (w *watch) Pause(ctx context.Context, req outbox.PauseRequest) error {
	return w.h.Office().Pause(ctx, req)
}

// move lets what was told as final be pending again.
func (w *watch) move(ctx context.Context, from outbox.State, req outbox.MoveRequest, move func(context.Context, outbox.MoveRequest) (int, error)) (int, error) {
	mark := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.moved++
		for _, k := range w.known {
			if k.final == from {
				k.final = 0
			}
		}
	}
	mark()
	n, err := move(ctx, req)
	mark()
	if err == nil && (n < 0 || n > req.Limit) {
		w.fault("%d messages were moved, with a limit of %d", n, req.Limit)
	}
	return n, err
}

func (w *watch) Retry(ctx context.Context, req outbox.MoveRequest) (int, error) {
	return w.move(ctx, outbox.Dead, req, w.h.Office().Retry)
}

func (w *watch) Replay(ctx context.Context, req outbox.MoveRequest) (int, error) {
	return w.move(ctx, outbox.Delivered, req, w.h.Office().Replay)
}

// Prune forgets what the store has forgotten, which must have been over. No other call runs meanwhile.
func (w *watch) Prune(ctx context.Context, req outbox.PruneRequest) (int, error) {
	before, err := w.all(ctx)
	if err != nil {
		return 0, err
	}
	n, err := w.h.Office().Prune(ctx, req)
	if err != nil {
		return n, err
	}
	if n < 0 || n > req.Limit {
		w.fault("%d messages were pruned, with a limit of %d", n, req.Limit)
	}
	after, err := w.all(ctx)
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	gone := 0
	for id, was := range before {
		if _, there := after[id]; there {
			continue
		}
		gone++
		if was.State == outbox.Pending {
			w.faultLocked("%v was pending and is forgotten", id)
		}
		k := w.known[id]
		delete(w.known, id)
		delete(w.at, k.position)
		for c, of := range w.chains {
			for i := range of {
				if of[i] == k {
					w.chains[c] = append(of[:i:i], of[i+1:]...)
					break
				}
			}
		}
	}
	if gone != n {
		w.faultLocked("%d messages were pruned, and %d are gone", n, gone)
	}
	return n, nil
}

// all lists everything.
func (w *watch) all(ctx context.Context) (map[fence.ID]outbox.Info, error) {
	found := map[fence.ID]outbox.Info{}
	for after, more := int64(0), true; more; {
		page, err := w.List(ctx, outbox.ListRequest{After: after, Limit: outbox.MaxList})
		if err != nil {
			return nil, fmt.Errorf("listing everything: %w", err)
		}
		for i := range page {
			if _, twice := found[page[i].ID]; twice {
				w.fault("%v is listed twice", page[i].ID)
			}
			found[page[i].ID] = page[i]
		}
		if more = len(page) == outbox.MaxList; more {
			after = page[len(page)-1].Position
		}
	}
	return found, nil
}

// finish compares everything that there is with what was appended, drains it, and asks the harness to check its store.
func (w *watch) finish(ctx context.Context) error {
	found, err := w.all(ctx)
	if err != nil {
		return errors.Join(w.found(), err)
	}
	w.compare(found)
	if err := w.counted(ctx, found); err != nil {
		return errors.Join(w.found(), err)
	}
	if err := w.drain(ctx, len(found)); err != nil {
		return errors.Join(w.found(), err)
	}
	return errors.Join(w.found(), w.h.Check(ctx))
}

// compare demands that what was appended, and that alone, is there: pending, delivered or dead.
func (w *watch) compare(found map[fence.ID]outbox.Info) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, k := range w.known {
		if _, there := found[id]; !there && k.done != 0 {
			w.faultLocked("%v was appended and is not there", id)
		}
		if len(k.asked) == 0 {
			w.faultLocked("%v was told of, and never appended, or its transaction was rolled back", id)
		}
	}
}

// counted compares the counts of the topics with the list.
func (w *watch) counted(ctx context.Context, found map[fence.ID]outbox.Info) error {
	counts := map[string][2]int64{}
	for _, i := range found {
		n := counts[i.Topic]
		switch i.State {
		case outbox.Pending:
			n[0]++
		case outbox.Dead:
			n[1]++
		case outbox.Delivered:
		}
		counts[i.Topic] = n
	}
	for after, more := "", true; more; {
		page, err := w.Topics(ctx, after)
		if err != nil {
			return fmt.Errorf("counting topics: %w", err)
		}
		for _, t := range page {
			if n := counts[t.Topic]; n != [2]int64{t.Pending, t.Dead} {
				w.fault("of topic %q %d are counted as pending and %d as dead; listed are %v", t.Topic, t.Pending, t.Dead, n)
			}
			delete(counts, t.Topic)
			if t.Paused {
				if err := w.Pause(ctx, outbox.PauseRequest{Topic: t.Topic}); err != nil {
					return fmt.Errorf("resuming %q: %w", t.Topic, err)
				}
			}
		}
		if more = len(page) == outbox.MaxList; more {
			after = page[len(page)-1].Topic
		}
	}
	for topic, n := range counts {
		if n != [2]int64{} {
			w.fault("topic %q is not counted, and has %v pending and dead", topic, n)
		}
	}
	return nil
}

// drain demands that whatever is pending can be claimed and published once every claim and every back-off has passed. Each claim hands out something, or nothing is left.
func (w *watch) drain(ctx context.Context, most int) error {
	if err := w.Advance(ctx, outbox.MaxTTL+outbox.MaxRetryIn+2*ttl); err != nil {
		return fmt.Errorf("advancing at the end: %w", err)
	}
	for i, more := 0, true; more && i <= most; i++ {
		req := request(fmt.Sprint("drain", i))
		req.MaxAttempts = outbox.MaxAttempts
		got, err := w.Claim(ctx, req)
		if err != nil {
			return fmt.Errorf("claiming at the end: %w", err)
		}
		if more = len(got.Deliveries) > 0; !more {
			break
		}
		settle := outbox.SettleRequest{Claim: req.Claim}
		for j := range got.Deliveries {
			settle.Verdicts = append(settle.Verdicts, outbox.Verdict{Position: got.Deliveries[j].Position, Outcome: outbox.Published})
		}
		if _, err := w.Settle(ctx, settle); err != nil {
			return fmt.Errorf("settling at the end: %w", err)
		}
	}
	left, err := w.List(ctx, outbox.ListRequest{States: []outbox.State{outbox.Pending}, Limit: 3})
	if err != nil {
		return fmt.Errorf("listing what is left at the end: %w", err)
	}
	for i := range left {
		w.fault("%v is pending, nothing holds it up, and no claim gets it: %+v", left[i].ID, left[i])
	}
	return nil
}
