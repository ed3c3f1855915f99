package holdtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// watch is the harness's store, and checks each reply for what must hold whatever the case is about. It is safe for concurrent use.
type watch struct {
	h Harness

	mu     sync.Mutex
	known  map[fence.ID]hold.Hold // the latest that was told of each
	graced map[fence.ID]bool      // a confirmation with grace was asked for: an expired one may be sold
	past   map[string]int64       // by item: what was sold by holds that are forgotten
	faults []error
}

func newWatch(h Harness) *watch {
	return &watch{h: h, known: map[fence.ID]hold.Hold{}, graced: map[fence.ID]bool{}, past: map[string]int64{}}
}

// maxFaults bounds what one run reports.
const maxFaults = 5

func (w *watch) faultLocked(format string, args ...any) {
	if len(w.faults) < maxFaults {
		w.faults = append(w.faults, fmt.Errorf(format, args...))
	}
}

// before is what had been told when a call began: a reply may not be older.
func (w *watch) before() map[fence.ID]hold.Hold {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.known)
}

// told checks a hold against what had been told before its call began.
func (w *watch) told(before map[fence.ID]hold.Hold, h hold.Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := CheckHold(h); err != nil {
		w.faultLocked("%w", err)
	}
	if was, ok := before[h.ID]; ok {
		if err := w.followsLocked(was, h); err != nil {
			w.faultLocked("%v: %w\n  before: %+v\n  now:    %+v", h.ID, err, was, h)
		}
	}
	if now, ok := w.known[h.ID]; !ok || rank(h.State) >= rank(now.State) {
		h.Lines = slices.Clone(h.Lines)
		w.known[h.ID] = h
	}
}

// rank is how final a state is: an expired hold may still be late, or confirmed with grace.
func rank(s hold.State) int {
	switch s {
	case hold.Held:
		return 0
	case hold.Expired:
		return 1
	case hold.Confirmed, hold.Released, hold.Late:
	}
	return 2
}

// CheckHold demands what must hold of every hold that is told, whatever came before.
func CheckHold(h hold.Hold) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%v is %v and %w: %+v", h.ID, h.State, fmt.Errorf(format, args...), h)
	}
	paid := h.State == hold.Confirmed || h.State == hold.Late
	switch {
	case h.State < hold.Held || h.State > hold.Late:
		return wrong("that is no state")
	case h.ID.IsZero() || h.Actor == "" || h.TTL <= 0:
		return wrong("has no id, no actor or no time")
	case len(h.Lines) == 0 || len(h.Lines) > hold.MaxLines:
		return wrong("has %d lines", len(h.Lines))
	case (h.State == hold.Held) != (h.Left > 0) || h.Left < 0 || h.Left > hold.MaxTTL:
		return wrong("has %v left", h.Left)
	case h.State == hold.Held && h.Ended != 0 || h.Ended < 0 || h.Age < 0 || h.Ended > h.Age+rounded:
		return wrong("ended %v ago, being placed %v ago", h.Ended, h.Age)
	case paid != (h.Reference != ""):
		return wrong("its reference is %q", h.Reference)
	}
	last := ""
	for _, l := range h.Lines {
		if l.Quantity < 1 || l.Item <= last {
			return wrong("its lines are not summed, or not by name")
		}
		last = l.Item
	}
	return nil
}

// followsLocked demands that a later hold takes nothing back.
func (w *watch) followsLocked(was, now hold.Hold) error {
	switch {
	case was.Actor != now.Actor || !slices.Equal(was.Lines, now.Lines) || was.TTL != now.TTL:
		return errors.New("its actor, its lines or its TTL changed")
	case rank(was.State) == 2 && was.State != now.State:
		return fmt.Errorf("it was %v and is %v: a hold ends once", was.State, now.State)
	case rank(was.State) == 2 && was.Reference != now.Reference:
		return fmt.Errorf("its reference was %q and is %q", was.Reference, now.Reference)
	case was.State == hold.Expired && (now.State == hold.Held || now.State == hold.Released):
		return fmt.Errorf("it was expired and is %v", now.State)
	case was.State == hold.Expired && now.State == hold.Confirmed && !w.graced[now.ID]:
		return errors.New("it was expired and is confirmed, without grace")
	}
	return nil
}

// sold is what was told as sold of each item, in holds that are known or forgotten.
func (w *watch) soldLocked() map[string]int64 {
	sold := maps.Clone(w.past)
	for _, h := range w.known {
		if h.State == hold.Confirmed {
			for _, l := range h.Lines {
				sold[l.Item] += l.Quantity
			}
		}
	}
	return sold
}

// counted checks what is told of an item against what had been told as sold when the call began.
func (w *watch) counted(sold map[string]int64, i hold.ItemInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case i.Sold < 0 || i.Held < 0 || i.Sold+i.Held > i.Quantity:
		w.faultLocked("of %q there are %d, %d are sold and %d held", i.Name, i.Quantity, i.Sold, i.Held)
	case i.Sold < sold[i.Name]:
		w.faultLocked("of %q %d were told as sold, and %d are counted as sold", i.Name, sold[i.Name], i.Sold)
	}
}

// finish lists all that there is, compares holds and items, and asks the harness to check its store.
func (w *watch) finish(ctx context.Context) error {
	first, err := w.all(ctx)
	if err != nil {
		return err
	}
	var items []hold.ItemInfo
	for after, more := "", true; more; {
		page, err := w.Items(ctx, "", after, hold.MaxList)
		if err != nil {
			return fmt.Errorf("listing all items at the end: %w", err)
		}
		items = append(items, page...)
		if more = len(page) == hold.MaxList; more {
			after = page[len(page)-1].Name
		}
	}
	last, err := w.all(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	sold := w.soldLocked()
	for _, i := range items { // a hold may expire while they are listed, and none is placed
		if i.Held > first[i.Name] || i.Held < last[i.Name] {
			w.faultLocked("of %q %d are counted as held; its live holds have %d", i.Name, i.Held, last[i.Name])
		}
		if i.Sold != sold[i.Name] {
			w.faultLocked("of %q %d are counted as sold; the confirmed holds on it have %d", i.Name, i.Sold, sold[i.Name])
		}
	}
	return errors.Join(errors.Join(w.faults...), w.h.Check(ctx))
}

// all lists all holds, and returns what the live ones have of each item.
func (w *watch) all(ctx context.Context) (map[string]int64, error) {
	held := map[string]int64{}
	for after, more := (fence.ID{}), true; more; {
		page, err := w.List(ctx, hold.ListRequest{After: after, Limit: hold.MaxList})
		if err != nil {
			return nil, fmt.Errorf("listing all holds at the end: %w", err)
		}
		for _, h := range page {
			for _, l := range h.Lines {
				if h.State == hold.Held {
					held[l.Item] += l.Quantity
				}
			}
		}
		if more = len(page) == hold.MaxList; more {
			after = page[len(page)-1].ID
		}
	}
	return held, nil
}

// one passes the reply about one hold on.
func (w *watch) one(id fence.ID, call func() (hold.Hold, error)) (hold.Hold, error) {
	before := w.before()
	h, err := call()
	if err != nil {
		return h, err
	}
	if h.ID != id {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.faultLocked("asked for %v, and told of %v", id, h.ID)
		return h, nil
	}
	w.told(before, h)
	return h, nil
}

func (w *watch) Stock(ctx context.Context, items []hold.Item) error {
	return w.h.Store().Stock(ctx, items)
}

func (w *watch) Place(ctx context.Context, req hold.PlaceRequest) (hold.Hold, error) {
	return w.one(req.ID, func() (hold.Hold, error) { return w.h.Store().Place(ctx, req) })
}

func (w *watch) Extend(ctx context.Context, id fence.ID, actor string, ttl time.Duration) (hold.Hold, error) {
	return w.one(id, func() (hold.Hold, error) { return w.h.Store().Extend(ctx, id, actor, ttl) })
}

func (w *watch) Confirm(ctx context.Context, req hold.ConfirmRequest) (hold.Hold, error) {
	if req.Grace > 0 {
		w.mu.Lock()
		w.graced[req.ID] = true
		w.mu.Unlock()
	}
	return w.one(req.ID, func() (hold.Hold, error) { return w.h.Store().Confirm(ctx, req) })
}

func (w *watch) Release(ctx context.Context, id fence.ID, actor string) (hold.Hold, error) {
	return w.one(id, func() (hold.Hold, error) { return w.h.Store().Release(ctx, id, actor) })
}

func (w *watch) Get(ctx context.Context, id fence.ID) (hold.Hold, error) {
	return w.one(id, func() (hold.Hold, error) { return w.h.Store().Get(ctx, id) })
}

func (w *watch) Guarantees() hold.Guarantees { return w.h.Store().Guarantees() }

func (w *watch) List(ctx context.Context, req hold.ListRequest) ([]hold.Hold, error) {
	before := w.before()
	all, err := w.h.Office().List(ctx, req)
	for _, h := range all {
		w.told(before, h)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && len(all) > req.Limit {
		w.faultLocked("%d holds were listed, with a limit of %d", len(all), req.Limit)
	}
	last := req.After
	for _, h := range all {
		if !last.Less(h.ID) {
			w.faultLocked("%v is listed after %v", h.ID, last)
		}
		last = h.ID
	}
	return all, err
}

func (w *watch) Items(ctx context.Context, prefix, after string, limit int) ([]hold.ItemInfo, error) {
	w.mu.Lock()
	sold := w.soldLocked()
	w.mu.Unlock()
	all, err := w.h.Office().Items(ctx, prefix, after, limit)
	last := after
	for _, i := range all {
		w.counted(sold, i)
		w.mu.Lock()
		if i.Name <= last || !strings.HasPrefix(i.Name, prefix) {
			w.faultLocked("%q is listed after %q, with the prefix %q", i.Name, last, prefix)
		}
		w.mu.Unlock()
		last = i.Name
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && len(all) > limit {
		w.faultLocked("%d items were listed, with a limit of %d", len(all), limit)
	}
	return all, err
}

// Prune forgets what the store has forgotten: an id that comes again is a new hold, and what was sold stays sold.
func (w *watch) Prune(ctx context.Context, age time.Duration, limit int) (int, error) {
	n, err := w.h.Office().Prune(ctx, age, limit)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && (n < 0 || n > limit) {
		w.faultLocked("%d holds were pruned, with a limit of %d", n, limit)
	}
	gone := 0
	for id, h := range w.known {
		_, err := w.h.Store().Get(ctx, id)
		if !errors.Is(err, hold.ErrNotFound) {
			continue
		}
		gone++
		for _, l := range h.Lines {
			if h.State == hold.Confirmed {
				w.past[l.Item] += l.Quantity
			}
		}
		delete(w.known, id)
	}
	if gone > n {
		w.faultLocked("%d holds were pruned, and %d are gone", n, gone)
	}
	return n, err
}
