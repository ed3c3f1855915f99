package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// watch is the harness's store, and checks each reply for what must hold whatever the case is about. It is safe for concurrent use.
type watch struct {
	h     Harness
	start time.Time

	mu     sync.Mutex
	skew   time.Duration // that was advanced
	steps  int           // calls that began or ended
	moved  int           // retries and replays that began or ended
	known  map[fence.ID]*seen
	at     map[int64]*seen
	chains map[chain][]*seen
	open   map[fence.ID]bool // in a transaction that has not ended
	faults []error
}

type chain struct{ topic, key string }

// seen is what was told of a message.
type seen struct {
	id          fence.ID
	asked       []outbox.Message // as which it may have been appended
	began, done int              // steps of the first append that was told; done 0: none was
	index       int              // in that append
	position    int64            // 0: not told
	claim       fence.ID         // that was told as the latest
	until       time.Duration    // the claim is live at least until then, unless a verdict was sent
	sent        int              // verdicts about the message, or about one before it in its key, that were sent under the claim
	final       outbox.State     // that was told: it stays so
	since       int              // step at which that was told
}

// live reports whether the latest claim that was told is surely live.
func (k *seen) live(now time.Duration) bool { return k.sent == 0 && now < k.until }

func newWatch(h Harness) *watch {
	return &watch{h: h, start: time.Now(), known: map[fence.ID]*seen{}, at: map[int64]*seen{}, chains: map[chain][]*seen{}, open: map[fence.ID]bool{}}
}

// maxFaults bounds what one run reports.
const maxFaults = 5

func (w *watch) faultLocked(format string, args ...any) {
	if len(w.faults) < maxFaults {
		w.faults = append(w.faults, fmt.Errorf(format, args...))
	}
}

func (w *watch) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faultLocked(format, args...)
}

// found is what was found wrong so far.
func (w *watch) found() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.faults...)
}

// nowLocked is at least what has passed for the store.
func (w *watch) nowLocked() time.Duration { return time.Since(w.start) + w.skew }

func (w *watch) step() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stepLocked()
}

func (w *watch) stepLocked() int {
	w.steps++
	return w.steps
}

func (w *watch) passed(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skew += d
}

func (w *watch) Advance(ctx context.Context, d time.Duration) error {
	w.passed(d)
	return w.h.Advance(ctx, d)
}

// asks notes that messages may be there from now on.
func (w *watch) asks(messages []outbox.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range messages {
		if !m.ID.IsZero() {
			w.askLocked(m)
		}
	}
}

func (w *watch) askLocked(m outbox.Message) *seen {
	k := w.seenLocked(m.ID)
	for i := range k.asked {
		if same(&k.asked[i], &m) {
			return k
		}
	}
	m.Payload = slices.Clone(m.Payload)
	headers := map[string]string{}
	for name, value := range m.Headers {
		headers[name] = value
	}
	m.Headers = headers
	k.asked = append(k.asked, m)
	return k
}

func (w *watch) seenLocked(id fence.ID) *seen {
	k := w.known[id]
	if k == nil {
		k = &seen{id: id}
		w.known[id] = k
	}
	return k
}

// are notes that messages are there, by an append that began at this step.
func (w *watch) are(began int, messages []outbox.Message, ids []fence.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := w.stepLocked()
	for i, id := range ids {
		m := messages[i]
		m.ID = id
		k := w.askLocked(m)
		if k.done == 0 {
			k.began, k.done, k.index = began, ended, i
			if m.Ordered {
				w.chains[chain{m.Topic, m.Key}] = append(w.chains[chain{m.Topic, m.Key}], k)
			}
		}
	}
}

func (w *watch) Append(ctx context.Context, messages []outbox.Message) ([]fence.ID, error) {
	began := w.step()
	w.asks(messages)
	ids, err := w.h.Store().Append(ctx, messages)
	if err == nil && len(ids) == len(messages) {
		w.are(began, messages, ids)
	}
	return ids, err
}

// placedLocked checks that a message has a position of its own.
func (w *watch) placedLocked(k *seen, position int64) {
	if other := w.at[position]; other != nil && other != k {
		w.faultLocked("position %d is of %v and of %v", position, other.id, k.id)
	}
	if k.position != 0 && k.position != position {
		w.faultLocked("%v was at position %d and is at %d", k.id, k.position, position)
	}
	k.position, w.at[position] = position, k
}

// tellsLocked checks a message that was told against those that were asked for.
func (w *watch) tellsLocked(m *outbox.Message, bodies bool) *seen {
	if w.open[m.ID] {
		w.faultLocked("%v is told of, and its transaction has not ended", m.ID)
	}
	k := w.seenLocked(m.ID)
	like := slices.ContainsFunc(k.asked, func(a outbox.Message) bool {
		if !bodies {
			a.Headers, a.Payload = m.Headers, m.Payload
		}
		return same(&a, m)
	})
	if !like && len(k.asked) > 0 {
		w.faultLocked("%v was appended as %+v, and is told as %+v", m.ID, k.asked, *m)
	}
	return k
}

func (w *watch) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Batch, error) {
	req.Topics = slices.Clone(req.Topics)
	w.mu.Lock()
	sent, began, moved := w.nowLocked(), w.stepLocked(), w.moved
	w.mu.Unlock()
	got, err := w.h.Store().Claim(ctx, req)
	if err != nil {
		return got, err
	}
	for _, id := range w.claimed(&req, &got, sent, began) {
		i, err := w.h.Office().Get(ctx, id)
		w.mu.Lock()
		if err == nil && i.State == outbox.Pending && w.moved == moved {
			w.faultLocked("what follows %v in its key was handed out, and it is pending: %+v", id, i)
		}
		w.mu.Unlock()
	}
	return got, nil
}

// claimed checks a batch, and returns those of its keys that should be neither pending nor missing from it.
func (w *watch) claimed(req *outbox.ClaimRequest, got *outbox.Batch, sent time.Duration, began int) []fence.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stepLocked()
	size := 0
	for i := range got.Deliveries {
		size += len(got.Deliveries[i].Payload)
	}
	n := len(got.Deliveries)
	if got.Claim != req.Claim || got.Left <= 0 || got.Left > req.TTL || n > req.Limit || got.Dead < 0 || n > 1 && size > req.Bytes {
		w.faultLocked("of claim %+v there came claim %v, %v left, %d messages, %d bytes, %d given up", *req, got.Claim, got.Left, n, size, got.Dead)
	}
	last := int64(0)
	in := map[*seen]bool{}
	var look []fence.ID
	for i := range got.Deliveries {
		d := &got.Deliveries[i]
		if d.Position <= last {
			w.faultLocked("position %d comes after %d in a batch", d.Position, last)
		}
		last = d.Position
		if d.Attempt < 1 || d.Attempt > req.MaxAttempts || d.Age < 0 || len(req.Topics) > 0 && !slices.Contains(req.Topics, d.Topic) {
			w.faultLocked("%v of topic %q, attempt %d, age %v, was handed out to %+v", d.ID, d.Topic, d.Attempt, d.Age, *req)
		}
		k := w.tellsLocked(&d.Message, true)
		w.placedLocked(k, d.Position)
		if d.Ordered {
			look = append(look, w.beforeLocked(k, d, in, req.Claim)...)
		}
		in[k] = true
		if k.claim != req.Claim && k.live(w.nowLocked()) {
			w.faultLocked("%v is under the live claim %v and was handed out under %v", k.id, k.claim, req.Claim)
		}
		if k.final != 0 && k.since < began {
			w.faultLocked("%v is %v and was handed out", k.id, k.final)
		}
	}
	for k := range in { // when all are checked: one batch is one claim
		k.claim, k.until, k.sent = req.Claim, sent+req.TTL, 0
	}
	return look
}

// beforeLocked checks a delivery of an ordered key against the others of the key.
func (w *watch) beforeLocked(k *seen, d *outbox.Delivery, in map[*seen]bool, claim fence.ID) (look []fence.ID) {
	for _, x := range w.chains[chain{d.Topic, d.Key}] {
		if x == k || in[x] {
			continue
		}
		if x.claim != claim && x.live(w.nowLocked()) {
			w.faultLocked("%v was handed out under %v, and %v of its key is under the live claim %v", k.id, claim, x.id, x.claim)
		}
		first := k.done != 0 && (x.done < k.began || x.began == k.began && x.index < k.index)
		if first && x.final == 0 {
			look = append(look, x.id)
		}
	}
	return look
}

func (w *watch) Settle(ctx context.Context, req outbox.SettleRequest) (outbox.Settled, error) {
	w.mu.Lock()
	w.stepLocked()
	must := map[int64]bool{} // be late
	for _, v := range req.Verdicts {
		k := w.at[v.Position]
		if k == nil {
			continue
		}
		if k.claim != req.Claim {
			must[v.Position] = true
			continue
		}
		k.sent++
		if v.Outcome == outbox.Published || len(k.asked) == 0 {
			continue
		}
		for _, x := range w.chains[chain{k.asked[0].Topic, k.asked[0].Key}] {
			if x != k && x.claim == req.Claim && !slices.ContainsFunc(req.Verdicts, func(v outbox.Verdict) bool { return v.Position == x.position }) {
				x.sent++
			}
		}
	}
	w.mu.Unlock()
	asked := slices.Clone(req.Verdicts)
	got, err := w.h.Store().Settle(ctx, req)
	if err == nil {
		w.settled(&req, asked, &got, must)
	}
	return got, err
}

func (w *watch) settled(req *outbox.SettleRequest, asked []outbox.Verdict, got *outbox.Settled, must map[int64]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	step := w.stepLocked()
	if got.Applied+len(got.Late) != len(asked) || !slices.IsSorted(got.Late) {
		w.faultLocked("of %d verdicts %d were applied and %v late", len(asked), got.Applied, got.Late)
	}
	for _, v := range asked {
		late := slices.Contains(got.Late, v.Position)
		if must[v.Position] && !late {
			w.faultLocked("a verdict about position %d under %v was applied, and its latest claim is another", v.Position, req.Claim)
		}
		k := w.at[v.Position]
		if late || k == nil || k.claim != req.Claim || k.sent != 1 {
			continue
		}
		switch {
		case v.Outcome == outbox.Published:
			k.final, k.since = outbox.Delivered, step
		case v.Dead:
			k.final, k.since = outbox.Dead, step
		}
	}
}

func (w *watch) Guarantees() outbox.Guarantees { return w.h.Store().Guarantees() }
