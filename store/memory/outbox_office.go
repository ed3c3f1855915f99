package memory

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

func (s *Outbox) info(p *post, bodies bool) outbox.Info {
	i := outbox.Info{
		Message: p.Message, Bytes: len(p.Payload), Position: p.position, State: p.state, Attempts: p.attempts, Relay: p.relay, Age: s.now - p.appended,
	}
	i.Headers, i.Payload = nil, nil
	if bodies {
		i.Headers, i.Payload = maps.Clone(p.Headers), bytes.Clone(p.Payload)
	}
	if p.live(s.now) {
		i.Claimed = p.until - s.now
	}
	if p.state == outbox.Pending {
		i.DueIn = max(0, p.due-s.now)
	} else {
		i.Ended = s.now - p.ended
	}
	for _, f := range p.errors {
		f.Age = s.now - f.at
		i.Errors = append(i.Errors, f.Failure)
	}
	return i
}

// List implements [outbox.Office].
func (s *Outbox) List(ctx context.Context, req outbox.ListRequest) ([]outbox.Info, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	if err := s.begin(ctx, "list"); err != nil {
		return nil, err
	}
	defer s.end()
	var all []outbox.Info
	for _, p := range s.posts {
		if p.position > req.After && matches(p, req.Topic, req.Key) && (len(req.States) == 0 || slices.Contains(req.States, p.state)) && len(all) < req.Limit {
			all = append(all, s.info(p, req.Bodies))
		}
	}
	return all, nil
}

func matches(p *post, topic, key string) bool {
	return (topic == "" || p.Topic == topic) && (key == "" || p.Key == key)
}

// Get implements [outbox.Office].
func (s *Outbox) Get(ctx context.Context, id fence.ID) (outbox.Info, error) {
	if err := s.begin(ctx, "get"); err != nil {
		return outbox.Info{}, err
	}
	defer s.end()
	if p := s.ids[id]; p != nil {
		return s.info(p, true), nil
	}
	return outbox.Info{}, &outbox.NotFoundError{ID: id}
}

// Topics implements [outbox.Office].
func (s *Outbox) Topics(ctx context.Context, after string) ([]outbox.TopicInfo, error) {
	if err := outbox.CheckAfter(after); err != nil {
		return nil, err
	}
	if err := s.begin(ctx, "topics"); err != nil {
		return nil, err
	}
	defer s.end()
	known := map[string]*outbox.TopicInfo{}
	for topic, reason := range s.paused {
		known[topic] = &outbox.TopicInfo{Topic: topic, Paused: true, Reason: reason}
	}
	for _, p := range s.posts {
		if p.state == outbox.Delivered {
			continue
		}
		if known[p.Topic] == nil {
			known[p.Topic] = &outbox.TopicInfo{Topic: p.Topic}
		}
		if t := known[p.Topic]; p.state == outbox.Dead {
			t.Dead++
		} else {
			t.Pending++
			t.Oldest = max(t.Oldest, s.now-p.appended)
		}
	}
	var all []outbox.TopicInfo
	for _, t := range known {
		if after == "" || t.Topic > after {
			all = append(all, *t)
		}
	}
	slices.SortFunc(all, func(a, b outbox.TopicInfo) int { return strings.Compare(a.Topic, b.Topic) })
	return all[:min(len(all), outbox.MaxList)], nil
}

// Pause implements [outbox.Office].
func (s *Outbox) Pause(ctx context.Context, req outbox.PauseRequest) error {
	if err := req.Check(); err != nil {
		return err
	}
	if err := s.begin(ctx, "pause"); err != nil {
		return err
	}
	defer s.end()
	if req.Paused {
		s.paused[req.Topic] = req.Reason
	} else {
		delete(s.paused, req.Topic)
		s.wake()
	}
	return nil
}

// Retry implements [outbox.Office].
func (s *Outbox) Retry(ctx context.Context, req outbox.MoveRequest) (int, error) {
	return s.move(ctx, "retry", outbox.Dead, req)
}

// Replay implements [outbox.Office].
func (s *Outbox) Replay(ctx context.Context, req outbox.MoveRequest) (int, error) {
	return s.move(ctx, "replay", outbox.Delivered, req)
}

// move makes messages pending, the lowest positions first.
func (s *Outbox) move(ctx context.Context, op string, from outbox.State, req outbox.MoveRequest) (int, error) {
	if err := req.Check(); err != nil {
		return 0, err
	}
	if err := s.begin(ctx, op); err != nil {
		return 0, err
	}
	defer s.end()
	n := 0
	for _, p := range s.posts {
		if n == req.Limit {
			break
		}
		if p.state != from || !matches(p, req.Topic, req.Key) || len(req.IDs) > 0 && !slices.Contains(req.IDs, p.ID) || p.position < req.From || req.To > 0 && p.position > req.To ||
			req.Within > 0 && s.now-p.ended > req.Within {
			continue
		}
		p.state, p.attempts, p.lost, p.claim, p.settled, p.due, p.ended = outbox.Pending, 0, 0, fence.ID{}, false, s.now, 0
		n++
	}
	s.wake()
	return n, nil
}

// Prune implements [outbox.Office].
func (s *Outbox) Prune(ctx context.Context, req outbox.PruneRequest) (int, error) {
	if err := req.Check(); err != nil {
		return 0, err
	}
	if err := s.begin(ctx, "prune"); err != nil {
		return 0, err
	}
	defer s.end()
	n := 0
	s.posts = slices.DeleteFunc(s.posts, func(p *post) bool {
		var keep time.Duration
		switch p.state {
		case outbox.Delivered:
			keep = req.Delivered
		case outbox.Dead:
			keep = req.Dead
		case outbox.Pending:
		}
		if keep == 0 || s.now-p.ended < keep || n == req.Limit {
			return false
		}
		delete(s.ids, p.ID)
		n++
		return true
	})
	return n, nil
}
