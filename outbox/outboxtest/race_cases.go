package outboxtest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/outbox"
)

func raceCases() []Case[Harness] {
	return []Case[Harness]{
		plain("of-many-claims-at-once-each-message-is-in-one", claimsAtOnce),
		plain("B28-two-relays-and-ten-messages-of-one-key-keep-its-order", twoRelays),
		plain("B33-twenty-keys-of-fifty-are-delivered-in-order-by-four-relays", manyKeys),
		plain("many-appends-of-one-message-at-once-are-one", appendsAtOnce),
		plain("appends-and-claims-at-once-lose-nothing", appendsAndClaims),
		plain("of-verdicts-said-at-once-one-counts", verdictsAtOnce),
	}
}

func claimsAtOnce(s *stage) {
	const relays, many = 20, 200
	var all []outbox.Message
	for i := range many {
		all = append(all, note(fmt.Sprint("m", i), mail))
	}
	s.append(all...)
	var mu sync.Mutex
	got := map[string]int{}
	s.atOnce(relays, func(i int) error {
		for n := range many/relays + 10 {
			req := request(fmt.Sprint(i, " ", n))
			req.Limit, req.TTL = 7, outbox.MaxTTL
			b, err := s.store.Claim(s.ctx, req)
			if err != nil {
				return err
			}
			mu.Lock()
			for _, name := range delivered(b) {
				got[name]++
			}
			mu.Unlock()
		}
		return nil
	})
	rest := request("rest") // what every claim skipped because another was at it
	rest.TTL = outbox.MaxTTL
	for _, name := range delivered(s.claim(rest)) {
		got[name]++
	}
	s.want(s.failed() || len(got) == many, "of %d messages %d were handed out", many, len(got))
	for name, n := range got {
		s.want(n == 1, "%q was handed out %d times", name, n)
	}
}

// relays lets some relays publish at once until as many messages were delivered, and returns their names by key in the order in which they were.
func (s *stage) relays(n, limit, messages int) map[string][]string {
	var mu sync.Mutex
	got := map[string][]string{}
	count := 0
	left := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return count < messages
	}
	s.atOnce(n, func(i int) error {
		for round := 0; round < 100*messages && left(); round++ {
			req := request(fmt.Sprint(i, " ", round))
			req.Limit, req.TTL = limit, outbox.MaxTTL
			b, err := s.store.Claim(s.ctx, req)
			if err != nil || len(b.Deliveries) == 0 {
				if err != nil {
					return err
				}
				continue
			}
			settle := outbox.SettleRequest{Claim: req.Claim}
			mu.Lock() // the destination
			for _, d := range b.Deliveries {
				got[d.Key] = append(got[d.Key], nameOf(d.ID))
				count++
				settle.Verdicts = append(settle.Verdicts, outbox.Verdict{Position: d.Position, Outcome: outbox.Published})
			}
			mu.Unlock()
			if done, err := s.store.Settle(s.ctx, settle); err != nil || done.Applied != len(settle.Verdicts) {
				return fmt.Errorf("settling %d messages: %+v, %w", len(settle.Verdicts), done, err)
			}
		}
		return nil
	})
	return got
}

func twoRelays(s *stage) {
	var all []string
	for i := range 10 {
		all = append(all, fmt.Sprint("m", i))
	}
	s.append(line("k", all...)...)
	for i := 0; i < 6; i += 3 { // in turns
		req := request(fmt.Sprint("x", i))
		req.Limit = 3
		s.takes(req, all[i:i+3]...)
		s.none(fmt.Sprint("y", i))
		s.publish(fmt.Sprint("x", i), all[i:i+3]...)
	}
	all = all[6:]
	got := s.relays(2, 3, len(all)) // at once
	s.want(s.failed() || slices.Equal(got["k"], all), "two relays published %q", got["k"])
}

func manyKeys(s *stage) {
	const keys, each = 20, 50
	want := map[string][]string{}
	for i := range each {
		var batch []outbox.Message
		for k := range keys {
			key, name := fmt.Sprint("k", k), fmt.Sprint(k, " ", i)
			want[key] = append(want[key], name)
			batch = append(batch, ordered(name, mail, key))
		}
		s.append(batch...)
	}
	got := s.relays(4, 100, keys*each)
	for key, names := range want {
		s.want(s.failed() || slices.Equal(got[key], names), "of key %q four relays published %q; want %q", key, got[key], names)
	}
}

func appendsAtOnce(s *stage) {
	s.atOnce(20, func(i int) error {
		messages := []outbox.Message{note("a", mail), ordered("b", mail, "k"), note("c", mail)}
		if i%2 == 1 {
			slices.Reverse(messages)
		}
		_, err := s.store.Append(s.ctx, messages)
		return err
	})
	got := s.claim(request("x"))
	s.want(s.failed() || len(got.Deliveries) == 3, "three messages appended by twenty at once are handed out as %q", delivered(got))
}

func appendsAndClaims(s *stage) {
	const writers, each = 4, 25
	var mu sync.Mutex
	got := map[string][]string{}
	s.atOnce(2*writers, func(i int) error {
		if i < writers {
			for n := range each {
				key := fmt.Sprint("k", i%2) // two share each
				if _, err := s.store.Append(s.ctx, []outbox.Message{ordered(fmt.Sprint(i, " ", n), mail, key), note(fmt.Sprint("u", i, " ", n), mail)}); err != nil {
					return err
				}
			}
			return nil
		}
		for n := range each {
			req := request(fmt.Sprint(i, " ", n))
			req.Limit, req.TTL = 10, outbox.MaxTTL
			b, err := s.store.Claim(s.ctx, req)
			if err != nil {
				return err
			}
			for _, d := range b.Deliveries {
				mu.Lock()
				got[d.Key] = append(got[d.Key], nameOf(d.ID))
				mu.Unlock()
				if _, err := s.store.Settle(s.ctx, outbox.SettleRequest{Claim: req.Claim, Verdicts: []outbox.Verdict{{Position: d.Position, Outcome: outbox.Published}}}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	b := s.claim(request("rest"))
	for _, d := range b.Deliveries {
		got[d.Key] = append(got[d.Key], nameOf(d.ID))
	}
	total := 0
	for _, names := range got {
		total += len(names)
		slices.Sort(names)
		s.want(len(slices.Compact(names)) == len(names), "some were handed out twice: %q", names)
	}
	s.want(s.failed() || total == 2*writers*each, "of %d messages %d were handed out", 2*writers*each, total)
}

func verdictsAtOnce(s *stage) {
	s.append(notes("a")...)
	s.take("x", "a")
	s.atOnce(10, func(i int) error {
		v := s.verdict("a", outbox.Published)
		if i%2 == 1 {
			v = s.verdict("a", outbox.Failed)
		}
		done, err := s.store.Settle(s.ctx, outbox.SettleRequest{Claim: claimOf("x"), Verdicts: []outbox.Verdict{v}})
		if err == nil && done.Applied != 1 {
			return fmt.Errorf("under the latest claim: %+v", done)
		}
		return err
	})
	if s.failed() {
		return
	}
	i, err := s.store.Get(s.ctx, idOf("a"))
	s.want(err == nil && i.Attempts == 1 && (i.State == outbox.Delivered && len(i.Errors) == 0 || i.State == outbox.Pending && len(i.Errors) == 1), "after verdicts at once: %+v, %v", i, err)
}
