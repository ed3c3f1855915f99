package outboxtest_test

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

func (s *frail) info(r *row, bodies bool) outbox.Info {
	i := outbox.Info{Message: r.m, Bytes: len(r.m.Payload), Position: r.position, State: r.state, Attempts: r.tries, Relay: r.relay, Age: s.now() - r.born}
	switch {
	case !bodies && !s.is("bodies are told unasked"):
		i.Headers, i.Payload = nil, nil
	case !s.is("replies share what is kept"):
		i.Headers, i.Payload = maps.Clone(r.m.Headers), bytes.Clone(r.m.Payload)
	}
	if s.live(r) {
		i.Claimed = r.deadline - s.now()
	}
	if r.state == outbox.Pending {
		i.DueIn = max(0, r.due-s.now())
	} else {
		i.Ended = s.now() - r.over
	}
	for _, f := range r.errors {
		f.Age = s.now() - f.Age
		i.Errors = append(i.Errors, f)
	}
	return i
}

func (s *frail) List(ctx context.Context, req outbox.ListRequest) ([]outbox.Info, error) {
	if err := req.Check(); err != nil && !s.is("an operator is not checked") {
		return nil, err
	}
	end, err := s.begin(ctx, "list")
	if err != nil {
		return nil, err
	}
	defer end()
	var all []outbox.Info
	for _, r := range s.rows {
		after := r.position > req.After || r.position == req.After && s.is("a list begins at the position")
		state := len(req.States) == 0 || slices.Contains(req.States, r.state) || s.is("a list is of any state")
		if after && state && s.matches(r, req.Topic, req.Key) && len(all) < req.Limit {
			all = append(all, s.info(r, req.Bodies))
		}
	}
	return all, nil
}

func (s *frail) matches(r *row, topic, key string) bool {
	return (topic == "" || r.m.Topic == topic || s.is("a topic is not looked at")) && (key == "" || r.m.Key == key || s.is("a key is not looked at"))
}

func (s *frail) Get(ctx context.Context, id fence.ID) (outbox.Info, error) {
	end, err := s.begin(ctx, "get")
	if err != nil {
		return outbox.Info{}, err
	}
	defer end()
	if r := s.find(id); r != nil {
		return s.info(r, true), nil
	}
	return outbox.Info{}, &outbox.NotFoundError{ID: id}
}

func (s *frail) Topics(ctx context.Context, after string) ([]outbox.TopicInfo, error) {
	if err := outbox.CheckAfter(after); err != nil && !s.is("an operator is not checked") {
		return nil, err
	}
	end, err := s.begin(ctx, "topics")
	if err != nil {
		return nil, err
	}
	defer end()
	known := map[string]outbox.TopicInfo{}
	for topic, reason := range s.paused {
		known[topic] = outbox.TopicInfo{Topic: topic, Paused: true, Reason: reason}
	}
	for _, r := range s.rows {
		t := known[r.m.Topic]
		t.Topic = r.m.Topic
		switch {
		case r.state == outbox.Pending && (!s.live(r) || !s.is("what is claimed is not counted as pending")):
			t.Pending++
			t.Oldest = max(t.Oldest, s.now()-r.born)
		case r.state == outbox.Dead:
			t.Dead++
		default:
			continue
		}
		known[r.m.Topic] = t
	}
	all := slices.SortedFunc(maps.Values(known), func(a, b outbox.TopicInfo) int { return cmp.Compare(a.Topic, b.Topic) })
	return slices.DeleteFunc(all, func(t outbox.TopicInfo) bool { return after != "" && t.Topic <= after }), nil
}

func (s *frail) Pause(ctx context.Context, req outbox.PauseRequest) error {
	if err := req.Check(); err != nil && !s.is("an operator is not checked") {
		return err
	}
	end, err := s.begin(ctx, "pause")
	if err != nil {
		return err
	}
	defer end()
	if !req.Paused {
		delete(s.paused, req.Topic)
	} else if _, known := s.paused[req.Topic]; !known || !s.is("the first reason stays") {
		s.paused[req.Topic] = req.Reason
	}
	for _, r := range s.rows {
		if req.Paused && s.is("a pause ends claims") && r.m.Topic == req.Topic {
			r.claim = fence.ID{}
		}
	}
	s.wake()
	return nil
}

func (s *frail) Retry(ctx context.Context, req outbox.MoveRequest) (int, error) {
	return s.move(ctx, req, outbox.Dead)
}

func (s *frail) Replay(ctx context.Context, req outbox.MoveRequest) (int, error) {
	return s.move(ctx, req, outbox.Delivered)
}

// over reports whether it may be moved from this state.
func (s *frail) over(r *row, from outbox.State) bool {
	replay := from == outbox.Delivered
	return r.state == from || replay && (s.is("replay takes what is dead") && r.state == outbox.Dead || s.is("replay takes what is pending") && r.state == outbox.Pending) ||
		!replay && s.is("retry takes what is delivered") && r.state == outbox.Delivered
}

func (s *frail) move(ctx context.Context, req outbox.MoveRequest, from outbox.State) (int, error) {
	if err := req.Check(); err != nil && !s.is("an operator is not checked") {
		return 0, err
	}
	end, err := s.begin(ctx, "move")
	if err != nil {
		return 0, err
	}
	defer end()
	n := 0
	for _, r := range s.rows {
		in := r.position >= req.From && (req.To == 0 || r.position <= req.To) || s.is("a range is not looked at")
		id := len(req.IDs) == 0 || slices.Contains(req.IDs, r.m.ID) || s.is("ids are not looked at")
		when := req.Within == 0 || s.now()-r.over <= req.Within || s.is("when it ended is not looked at")
		if s.is("equality is missed") && req.Within != 0 {
			when = s.now()-r.over < req.Within
		}
		if !in || !id || !when || !s.over(r, from) || !s.matches(r, req.Topic, req.Key) || n == req.Limit && !s.is("moves know no limit") {
			continue
		}
		n++
		r.state, r.lost, r.due = outbox.Pending, 0, s.now()
		for _, o := range s.rows {
			if s.is("what is moved waits for what was put off") && r.m.Ordered && o.m.Topic == r.m.Topic && o.m.Key == r.m.Key && o.state == outbox.Pending {
				r.due = max(r.due, o.due)
			}
		}
		if !s.is("an old claim outlives a move") {
			r.claim, r.verdict = fence.ID{}, false
		}
		if from != outbox.Dead || !s.is("retry keeps the attempts") {
			r.tries = 0
		}
		if from == outbox.Delivered && s.is("replay changes the id") {
			r.m.ID[15]++
		}
		if from == outbox.Dead && s.is("what is retried goes to the end") {
			s.next++
			r.position = s.next
		}
	}
	slices.SortFunc(s.rows, func(a, b *row) int { return cmp.Compare(a.position, b.position) })
	s.wake()
	return n, nil
}

func (s *frail) Prune(ctx context.Context, req outbox.PruneRequest) (int, error) {
	if err := req.Check(); err != nil && !s.is("an operator is not checked") {
		return 0, err
	}
	end, err := s.begin(ctx, "prune")
	if err != nil {
		return 0, err
	}
	defer end()
	n := 0
	s.rows = slices.DeleteFunc(s.rows, func(r *row) bool {
		age, keep := s.now()-r.over, req.Delivered
		if s.is("the age counts from the append") {
			age = s.now() - r.born
		}
		switch {
		case r.state == outbox.Pending && !s.is("prune takes what is pending"), r.state == outbox.Dead && req.Dead == 0 && !s.is("dead letters are not kept"):
			return false
		case r.state == outbox.Dead:
			keep = max(req.Dead, time.Minute)
		}
		if age < keep || age == keep && s.is("equality is missed") || n == req.Limit && !s.is("prune knows no limit") {
			return false
		}
		n++
		return true
	})
	return n, nil
}
