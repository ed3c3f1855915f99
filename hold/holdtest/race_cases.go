package holdtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/hold"
)

func raceCases() []Case[Harness] {
	return []Case[Harness]{
		plain("H70-of-a-hundred-holds-on-one-unit-one-wins", hundredHolds),
		plain("a-hundred-places-under-one-id-are-one-hold", hundredPlaces),
		plain("all-or-none-with-many-callers-in-opposite-orders", oppositeOrders),
		plain("limits-are-kept-however-many-ask-at-once", limitsAtOnce),
		plain("F32-a-confirmation-and-an-expiry-at-once-agree", confirmOrExpiry),
		plain("F33-a-confirmation-and-a-release-at-once-agree", confirmOrRelease),
		plain("of-many-confirmations-at-once-one-reference-counts", manyConfirmations),
		plain("stock-lowered-and-holds-placed-at-once-agree", stockOrPlace),
		plain("F34-two-hundred-callers-for-the-last-unit-with-lost-replies", lastUnit),
		plain("a-call-that-was-cut-off-is-settled-by-repeating-it", cutOffRepeated),
		plain("F35-two-who-forget-at-once-give-back-nothing-twice", twoForget),
		plain("everything-at-once", everythingAtOnce),
	}
}

// won counts what is granted; a refusal of this kind is none.
type won struct {
	mu    sync.Mutex
	names []string
}

func (w *won) count(name string, err, refusal error) error {
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.names = append(w.names, name)
		return nil
	}
	if errors.Is(err, refusal) {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

func hundredHolds(s *stage) {
	for round := range 5 {
		item := fmt.Sprint("seat ", round)
		s.stock(1, item)
		var w won
		s.atOnce(100, func(i int) error {
			name := fmt.Sprint(round, " ", i)
			_, err := s.store.Place(s.ctx, request(name, fmt.Sprint("actor ", i), item))
			return w.count(name, err, hold.ErrTaken)
		})
		s.want(len(w.names) == 1, "of 100 holds on one unit %d were granted: %q", len(w.names), w.names)
		s.item(item, 1, 0, 1)
	}
}

func hundredPlaces(s *stage) {
	s.stock(100, "a")
	s.atOnce(100, func(i int) error {
		if i%10 == 9 { // somebody uses the id for something else
			_, err := s.store.Place(s.ctx, requestOf("x", bob, line("a", 2)))
			return unless(err, hold.ErrMismatch)
		}
		_, err := s.store.Place(s.ctx, request("x", ann, "a"))
		return unless(err, hold.ErrMismatch)
	})
	if s.failed() {
		return
	}
	all, err := s.store.List(s.ctx, hold.ListRequest{Limit: 10})
	s.want(err == nil && len(all) == 1, "of one id there are %+v, %v", all, err)
	if !s.failed() {
		s.item("a", 100, 0, all[0].Lines[0].Quantity)
	}
}

// unless is err but for an expected kind.
func unless(err error, kinds ...error) error {
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return nil
		}
	}
	return err
}

func oppositeOrders(s *stage) {
	const callers, rounds = 30, 8
	s.stock(3, "a", "b", "c", "d")
	orders := [][]string{{"a", "b", "c", "d"}, {"d", "c", "b", "a"}, {"b", "d"}, {"c", "a", "d"}, {"d", "a"}}
	for round := range rounds {
		var w won
		s.atOnce(callers, func(i int) error {
			name := fmt.Sprint(i, " ", round)
			_, err := s.store.Place(s.ctx, request(name, ann, orders[(i+round)%len(orders)]...))
			if err := w.count(name, err, hold.ErrTaken); err != nil {
				return err
			}
			_, err = s.store.Items(s.ctx, "", "", 10)
			return err
		})
		s.want(len(w.names) > 0, "of %d callers nobody was granted anything", callers)
		s.atOnce(len(w.names), func(i int) error {
			_, err := s.store.Release(s.ctx, idOf(w.names[i]), ann)
			return err
		})
	}
	for _, item := range orders[0] {
		s.item(item, 3, 0, 0)
	}
}

func limitsAtOnce(s *stage) {
	s.stock(1, "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9")
	s.stock(100, "floor")
	var holds, units won
	s.atOnce(40, func(i int) error {
		name := fmt.Sprint("x", i)
		if i%2 == 0 { // of strangers' items, so that no item keeps them apart
			req := request(name, ann, fmt.Sprint("s", i/2%10))
			req.MaxHolds = 3
			_, err := s.store.Place(s.ctx, req)
			if errors.Is(err, hold.ErrTaken) {
				return nil
			}
			return holds.count(name, err, hold.ErrLimit)
		}
		req := requestOf(name, bob, line("floor", 3))
		req.MaxUnits = 10
		_, err := s.store.Place(s.ctx, req)
		return units.count(name, err, hold.ErrLimit)
	})
	s.want(len(holds.names) == 3, "with a limit of 3 holds %d were granted: %q", len(holds.names), holds.names)
	s.want(len(units.names) == 3, "with a limit of 10 units %d holds of 3 were granted: %q", len(units.names), units.names)
}

// confirmOrExpiry confirms a hold around its expiry, a little earlier or later in each round, while another waits for what it has.
func confirmOrExpiry(s *stage) {
	const rounds, maxTries = 20, 100_000
	for round := range rounds {
		x, y, item := fmt.Sprint("x", round), fmt.Sprint("y", round), fmt.Sprint("seat ", round)
		s.stock(1, item)
		short := request(x, ann, item)
		short.TTL = 4 * time.Millisecond
		if s.failed() {
			return
		}
		_, err := s.store.Place(s.ctx, short)
		s.want(err == nil, "placing: %v", err)
		granted := false
		var told hold.Hold
		s.atOnce(2, func(i int) (err error) {
			if i == 0 {
				before := time.Duration(rounds/2-round) * 100 * time.Microsecond
				for range maxTries {
					h, err := s.h.Store().Get(s.ctx, idOf(x))
					if err != nil {
						return err
					}
					if h.State == hold.Held && h.Left <= before || h.State != hold.Held && h.Ended >= -before {
						break
					}
				}
				told, err = s.store.Confirm(s.ctx, paid(x, ann, "r"))
				return err
			}
			for range maxTries {
				_, err = s.h.Store().Place(s.ctx, request(y, bob, item))
				var t *hold.TakenError
				if err == nil || errors.As(err, &t) && t.Next == 0 { // held by nobody: it is sold
					break
				}
				if !errors.Is(err, hold.ErrTaken) {
					return err
				}
			}
			granted = err == nil
			return unless(err, hold.ErrTaken)
		})
		if s.failed() {
			return
		}
		s.want(told.State == hold.Confirmed && !granted || told.State == hold.Late && granted, "round %d: the confirmation answered %v, and the next hold was granted: %t", round, told.State, granted)
		if granted {
			s.item(item, 1, 0, 1)
		} else {
			s.item(item, 1, 1, 0)
		}
	}
}

func confirmOrRelease(s *stage) {
	const n = 20
	for i := range n {
		s.stock(1, fmt.Sprint("seat ", i))
		s.place(fmt.Sprint("x", i), ann, fmt.Sprint("seat ", i))
	}
	errs := make([]error, 2*n)
	s.atOnce(2*n, func(i int) error {
		name := fmt.Sprint("x", i/2)
		if i%2 == 0 {
			_, errs[i] = s.store.Confirm(s.ctx, paid(name, ann, "r"))
		} else {
			_, errs[i] = s.store.Release(s.ctx, idOf(name), ann)
		}
		return unless(errs[i], hold.ErrOver)
	})
	for i := range n {
		sold, released := errs[2*i] == nil, errs[2*i+1] == nil
		s.want(sold != released, "of one hold, the confirmation says %v, and the release %v", errs[2*i], errs[2*i+1])
		if sold {
			s.at(fmt.Sprint("x", i), hold.Confirmed, "r")
		} else {
			s.at(fmt.Sprint("x", i), hold.Released, "")
		}
	}
}

func manyConfirmations(s *stage) {
	for round := range 5 {
		name := fmt.Sprint("x", round)
		s.stock(3, name)
		s.placed(requestOf(name, ann, line(name, 2)))
		if round%2 == 1 {
			s.advance(past) // then one is late
		}
		var w won
		s.atOnce(16, func(i int) error {
			reference := fmt.Sprint("r", i/2) // each twice
			_, err := s.store.Confirm(s.ctx, paid(name, ann, reference))
			return w.count(reference, err, hold.ErrMismatch)
		})
		s.want(len(w.names) == 2 && w.names[0] == w.names[1], "confirmed under %q; want one reference, twice", w.names)
		if s.failed() {
			return
		}
		if round%2 == 1 {
			s.at(name, hold.Late, w.names[0])
			s.item(name, 3, 0, 0)
		} else {
			s.at(name, hold.Confirmed, w.names[0])
			s.item(name, 3, 2, 0)
		}
	}
}

func stockOrPlace(s *stage) {
	const callers, rounds = 20, 10
	for round := range rounds {
		s.stock(50, "a")
		var w won
		s.atOnce(callers, func(i int) error {
			if (i+round)%5 == 0 { // whatever is asked for, there is never less than is held
				if err := unless(s.store.Stock(s.ctx, []hold.Item{{Name: "a", Quantity: int64(i % 4)}}), hold.ErrTaken); err != nil {
					return err
				}
				_, err := s.store.Items(s.ctx, "", "", 10)
				return err
			}
			name := fmt.Sprint(i, " ", round)
			_, err := s.store.Place(s.ctx, request(name, ann, "a"))
			return w.count(name, err, hold.ErrTaken)
		})
		s.atOnce(len(w.names), func(i int) error {
			_, err := s.store.Release(s.ctx, idOf(w.names[i]), ann)
			return err
		})
	}
	s.stock(0, "a")
	s.item("a", 0, 0, 0)
}

// lastUnit has callers whose replies are lost: they know nothing, and ask again until they know.
func lastUnit(s *stage) {
	const callers, tries = 200, 50
	s.stock(1, "seat", "other")
	var w won
	s.atOnce(callers, func(i int) error {
		name, actor := fmt.Sprint("x", i), fmt.Sprint("actor ", i)
		item := []string{"seat", "other"}[i%2]
		settle := func(call func(ctx context.Context) error) error {
			for try := range tries {
				ctx, cancel := s.ctx, context.CancelFunc(func() {})
				if (i+try)%3 == 0 { // cut off somewhere
					ctx, cancel = context.WithTimeout(s.ctx, time.Duration(i%40)*50*time.Microsecond)
				}
				err := call(ctx)
				cancel()
				// The first answer reaches nobody.
				if try > 0 && !errors.Is(err, hold.ErrUnknown) && !errors.Is(err, hold.ErrUnavailable) {
					return err
				}
			}
			return fmt.Errorf("%s is not settled after %d tries", name, tries)
		}
		req := request(name, actor, item)
		req.TTL = time.Hour // none expires meanwhile
		err := settle(func(ctx context.Context) error {
			_, err := s.store.Place(ctx, req)
			return err
		})
		if err != nil {
			return unless(err, hold.ErrTaken)
		}
		err = settle(func(ctx context.Context) error {
			h, err := s.store.Confirm(ctx, paid(name, actor, "pays "+name))
			if err == nil && h.State != hold.Confirmed {
				return fmt.Errorf("confirmed in time: %+v", h)
			}
			return err
		})
		return w.count(name, err, nil)
	})
	s.want(len(w.names) == 2, "of two last units %d were sold: %q", len(w.names), w.names)
	s.item("seat", 1, 1, 0)
	s.item("other", 1, 1, 0)
	s.list(hold.ListRequest{States: []hold.State{hold.Held, hold.Released, hold.Expired, hold.Late}})
	s.advance(2 * time.Hour) // nothing is left of any call
	s.item("seat", 1, 1, 0)
	s.item("other", 1, 1, 0)
}

// cutOff runs a call that is cut off after d, and reports whether it was certainly not applied.
func (s *stage) cutOff(d time.Duration, doing string, call func(ctx context.Context) error) (not bool) {
	if s.failed() {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ctx, d)
	defer cancel()
	err := call(ctx)
	s.want(err == nil || errors.Is(err, hold.ErrUnknown) || errors.Is(err, hold.ErrUnavailable), "%s, cut off: %v; want success, ErrUnknown or ErrUnavailable", doing, err)
	return errors.Is(err, hold.ErrUnavailable)
}

func cutOffRepeated(s *stage) {
	i := 0
	for d := time.Duration(0); d < 2*time.Millisecond && !s.failed(); d += 80 * time.Microsecond { // from before it began to well within its commit
		i++
		name := fmt.Sprint("x", i)
		s.stock(1, name)
		req := request(name, ann, name)
		if s.cutOff(d, "a place", func(ctx context.Context) error { _, err := s.store.Place(ctx, req); return err }) {
			_, err := s.store.Get(s.ctx, req.ID)
			s.kind(err, hold.ErrNotFound, "getting what was certainly not placed")
		}
		s.again(req, hold.Held)
		s.item(name, 1, 0, 1)
		not := s.cutOff(d, "an extension", func(ctx context.Context) error {
			_, err := s.store.Extend(ctx, req.ID, ann, time.Hour)
			return err
		})
		h := s.at(name, hold.Held, "")
		s.want(!not || near(h.Left, ttl), "an extension that was certainly not applied leaves %v", h.Left)
		s.extend(name, ann, time.Hour, time.Hour)
		if i%3 == 0 {
			not = s.cutOff(d, "a release", func(ctx context.Context) error { _, err := s.store.Release(ctx, req.ID, ann); return err })
			if not {
				s.at(name, hold.Held, "")
			}
			s.release(name, ann, hold.Released)
			s.item(name, 1, 0, 0)
			continue
		}
		not = s.cutOff(d, "a confirmation", func(ctx context.Context) error {
			_, err := s.store.Confirm(ctx, paid(name, ann, "pays "+name))
			return err
		})
		if not {
			s.at(name, hold.Held, "")
		}
		s.sell(name, ann)
		s.item(name, 1, 1, 0)
	}
}

func twoForget(s *stage) {
	const n = 60
	s.stock(n, "a")
	for i := range n {
		name := fmt.Sprintf("x%02d", i)
		s.place(name, ann, "a")
		if i%2 == 0 {
			s.sell(name, ann)
		}
	}
	s.advance(2 * hold.MinPruneAge)
	var mu sync.Mutex
	total := 0
	forget := func(limit int) error { // not by the watch, which looks at what one call has forgotten
		k, err := s.h.Office().Prune(s.ctx, hold.MinPruneAge, limit)
		mu.Lock()
		defer mu.Unlock()
		total += k
		return err
	}
	s.atOnce(4, func(int) error {
		for range 10 {
			if err := forget(5); err != nil {
				return err
			}
		}
		return nil
	})
	if !s.failed() { // what others held at that moment
		s.want(forget(n) == nil, "forgetting what is left failed")
	}
	s.want(total == n, "of %d holds %d were told as forgotten", n, total)
	s.item("a", n, n/2, 0)
}

// everythingAtOnce lets many actors do all that there is with few items; the watch looks at what comes of it.
func everythingAtOnce(s *stage) {
	s.stock(2, "a", "b", "c")
	items := []string{"a", "b", "c"}
	s.atOnce(16, func(i int) error {
		for k := range 12 {
			name, actor := fmt.Sprint("x", i, " ", k), fmt.Sprint("actor ", i%4)
			req := request(name, actor, items[(i+k)%3], items[(i+2*k)%3])
			req.MaxHolds = 3
			if k%3 == 0 {
				req.TTL = time.Millisecond
			}
			if err := s.use(name, actor, req, i+k); err != nil {
				return err
			}
			if err := unless(s.store.Stock(s.ctx, []hold.Item{{Name: items[k%3], Quantity: int64(2 + (i+k)%9)}}), hold.ErrTaken); err != nil {
				return err
			}
			if _, err := s.store.Items(s.ctx, "", "", 10); err != nil {
				return err
			}
			if _, err := s.store.List(s.ctx, hold.ListRequest{Actor: actor, States: []hold.State{hold.Held, hold.Late}, Limit: 20}); err != nil {
				return err
			}
		}
		return nil
	})
}

// use does with a hold, if it is granted, what the number says.
func (s *stage) use(name, actor string, req hold.PlaceRequest, what int) error {
	_, err := s.store.Place(s.ctx, req)
	if err != nil {
		return unless(err, hold.ErrTaken, hold.ErrLimit)
	}
	switch what % 4 {
	case 0:
		_, err = s.store.Release(s.ctx, idOf(name), actor)
	case 1:
		_, err = s.store.Extend(s.ctx, idOf(name), actor, 20*time.Millisecond)
	case 2:
		_, err = s.store.Confirm(s.ctx, paid(name, actor, "r"))
	case 3:
		_, err = s.store.Confirm(s.ctx, graced(name, actor, "r", time.Second))
	}
	return unless(err, hold.ErrOver)
}
