package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// Follow is Claim with the choice of another store: it gives these messages up, hands those out, in this order, and returns an error if the contract does not leave that to a store. It is for
// tests that run two stores in step.
func (s *Outbox) Follow(ctx context.Context, req outbox.ClaimRequest, handed, dead []fence.ID) (outbox.Batch, error) {
	if err := req.Check(); err != nil {
		return outbox.Batch{}, err
	}
	if err := s.begin(ctx, "claim"); err != nil {
		return outbox.Batch{}, err
	}
	defer s.end()
	got := outbox.Batch{Claim: req.Claim, Left: req.TTL}
	exempt := map[chain]bool{} // what is behind one that is given up now may come with the next claim
	for _, id := range dead {
		p := s.ids[id]
		if p == nil || !slices.Contains(s.eligible(&req, nil), p) || p.attempts < req.MaxAttempts {
			return got, fmt.Errorf("%v was given up, and was not to be", id)
		}
		exempt[p.chain()] = p.Ordered || exempt[p.chain()]
		s.giveUp(p)
		got.Dead++
	}
	chosen := make([]*post, 0, len(handed))
	size := 0
	for _, id := range handed {
		p := s.ids[id]
		if p == nil || p.attempts >= req.MaxAttempts || !slices.Contains(s.eligible(&req, chosen), p) || slices.Contains(chosen, p) {
			return got, fmt.Errorf("%v was handed out, and was not to be", id)
		}
		chosen = append(chosen, p)
		size += len(p.Payload)
	}
	if err := s.left(&req, chosen, size, exempt); err != nil {
		return got, err
	}
	for _, p := range chosen {
		got.Deliveries = append(got.Deliveries, s.hand(p, &req))
	}
	return got, nil
}

// eligible are the messages that a claim may take, or give up, if it has taken these already.
func (s *Outbox) eligible(req *outbox.ClaimRequest, taken []*post) []*post {
	blocked := s.claimed()
	var all []*post
	for _, p := range s.posts {
		switch {
		case slices.Contains(taken, p) || p.state != outbox.Pending || !s.open(p.Topic) || p.Ordered && blocked[p.chain()] || len(req.Topics) > 0 && !slices.Contains(req.Topics, p.Topic):
			continue
		case s.due(p):
			all = append(all, p)
		}
		if p.Ordered {
			blocked[p.chain()] = true
		}
	}
	return all
}

// left returns an error unless a claim that has taken these may leave what it leaves.
func (s *Outbox) left(req *outbox.ClaimRequest, chosen []*post, size int, exempt map[chain]bool) error {
	suspect := func(p *post) bool { return p.losses(s.now) >= outbox.LostBefore }
	lost := slices.ContainsFunc(chosen, suspect)
	if lost && len(chosen) > 1 || len(chosen) > req.Limit || size > req.Bytes && len(chosen) > 1 {
		return fmt.Errorf("%d messages of %d bytes were handed out together (what was lost twice is among them: %v)", len(chosen), size, lost)
	}
	if lost || len(chosen) == req.Limit {
		return nil
	}
	for _, p := range s.eligible(req, chosen) {
		fits := len(chosen) == 0 || size+len(p.Payload) <= req.Bytes
		if !fits {
			return nil // and a store may stop there
		}
	}
	for _, p := range s.eligible(req, chosen) {
		if p.attempts >= req.MaxAttempts || !(suspect(p) && len(chosen) > 0 || p.Ordered && exempt[p.chain()]) {
			return fmt.Errorf("%v was due, no limit was in its way, and it was left", p.ID)
		}
	}
	return nil
}
