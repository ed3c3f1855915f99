package memory

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/operation"
)

// Operations keeps operations in this process's memory. Like [Store] it runs one call at a time, no call's outcome is ever unknown, and nothing survives the process. It is what
// every other store of operations is compared with.
type Operations struct {
	clock func() time.Duration
	turn  chan struct{} // as in Store
	core  *opCore       // guarded by turn
	ahead time.Duration // of the clock, by Advance; guarded by turn
}

var _ operation.Backend = (*Operations)(nil)

// NewOperations returns an empty store of operations.
func NewOperations(o Options) *Operations {
	if o.Clock == nil {
		o.Clock = clock.Client()
	}
	return &Operations{clock: o.Clock, turn: make(chan struct{}, 1), core: &opCore{now: o.Clock(), records: map[string]*record{}}}
}

func (s *Operations) begin(ctx context.Context, op string) error {
	if ctx.Err() == nil {
		select {
		case s.turn <- struct{}{}:
			s.core.now = max(s.core.now, s.clock()+s.ahead)
			return nil
		case <-ctx.Done():
		}
	}
	return &operation.UnavailableError{Op: op, Err: context.Cause(ctx)}
}

func (s *Operations) end() { <-s.turn }

// Advance makes it as if d, which is not negative, had passed. For tests and drills.
func (s *Operations) Advance(d time.Duration) {
	s.turn <- struct{}{}
	defer s.end()
	s.ahead += max(d, 0)
}

// Submit implements [operation.Store].
func (s *Operations) Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
	if err := req.Check(); err != nil {
		return operation.Submitted{}, err
	}
	if err := s.begin(ctx, "submit"); err != nil {
		return operation.Submitted{}, err
	}
	defer s.end()
	return s.core.submit(req)
}

// Get implements [operation.Store].
func (s *Operations) Get(ctx context.Context, id string) (operation.Record, error) {
	return s.record(ctx, "get", id, operation.CheckID(id), func(*record) error { return nil })
}

// Cancel implements [operation.Store].
func (s *Operations) Cancel(ctx context.Context, id, reason string) (operation.Record, error) {
	err := operation.CheckID(id)
	if err == nil {
		err = operation.CheckReason(reason, false)
	}
	return s.record(ctx, "cancel", id, err, func(r *record) error { return s.core.cancel(r, reason) })
}

// Respond implements [operation.Store].
func (s *Operations) Respond(ctx context.Context, resp operation.Response) (operation.Record, error) {
	return s.record(ctx, "respond", resp.ID, resp.Check(), func(r *record) error { return s.core.respond(r, resp) })
}

// record runs a change of one operation. A rule may refuse and change something all the same.
func (s *Operations) record(ctx context.Context, op, id string, invalid error, change func(*record) error) (operation.Record, error) {
	if invalid != nil {
		return operation.Record{}, invalid
	}
	if err := s.begin(ctx, op); err != nil {
		return operation.Record{}, err
	}
	defer s.end()
	r := s.core.records[id]
	if r == nil {
		return operation.Record{}, &operation.NotFoundError{ID: id}
	}
	before := r.op
	err := change(r)
	if err != nil && r.op == before {
		return operation.Record{}, err
	}
	return s.core.tell(r, true), err
}

// Guarantees implements [operation.Store].
func (s *Operations) Guarantees() operation.Guarantees {
	return operation.Guarantees{Store: "memory", MaxBody: operation.MaxBody, Deduplicates: operation.MinForget}
}

// Claim implements [operation.Queue].
func (s *Operations) Claim(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	if err := s.begin(ctx, "claim"); err != nil {
		return nil, err
	}
	defer s.end()
	return s.core.claim(req), nil
}

// Renew implements [operation.Queue].
func (s *Operations) Renew(ctx context.Context, req operation.RenewRequest) ([]operation.Ref, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	if err := s.begin(ctx, "renew"); err != nil {
		return nil, err
	}
	defer s.end()
	return s.core.renew(req), nil
}

// Complete implements [operation.Queue].
func (s *Operations) Complete(ctx context.Context, all []operation.Completion) ([]error, error) {
	if len(all) > operation.MaxBatch {
		return nil, &operation.InvalidError{Field: "completions", Problem: "too many"}
	}
	if err := s.begin(ctx, "complete"); err != nil {
		return nil, err
	}
	defer s.end()
	errs := make([]error, len(all))
	for i, c := range all {
		errs[i] = s.core.complete(c)
	}
	return errs, nil
}

// Expire implements [operation.Desk].
func (s *Operations) Expire(ctx context.Context, limit int) (int, error) {
	if limit < 1 || limit > operation.MaxBatch {
		return 0, &operation.InvalidError{Field: "limit", Problem: "want 1 to MaxBatch"}
	}
	if err := s.begin(ctx, "expire"); err != nil {
		return 0, err
	}
	defer s.end()
	return s.core.expire(limit), nil
}

// Due implements [operation.Desk].
func (s *Operations) Due(ctx context.Context, req operation.DueRequest) ([]operation.Record, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	if err := s.begin(ctx, "due"); err != nil {
		return nil, err
	}
	defer s.end()
	return s.core.dueNow(req), nil
}

// Inquired implements [operation.Desk].
func (s *Operations) Inquired(ctx context.Context, inq operation.Inquiry) (operation.Record, error) {
	return s.record(ctx, "inquired", inq.ID, inq.Check(), func(r *record) error { return s.core.inquired(r, inq) })
}

// Undone implements [operation.Desk].
func (s *Operations) Undone(ctx context.Context, id, compensation string) (operation.Record, error) {
	err := operation.CheckID(id)
	if err == nil {
		err = operation.CheckID(compensation)
	}
	return s.record(ctx, "undone", id, err, func(r *record) error { return s.core.undone(r, compensation) })
}

// List implements [operation.Office].
func (s *Operations) List(ctx context.Context, req operation.ListRequest) ([]operation.Record, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	if err := s.begin(ctx, "list"); err != nil {
		return nil, err
	}
	defer s.end()
	return s.core.list(req), nil
}

// Resolve implements [operation.Office].
func (s *Operations) Resolve(ctx context.Context, v operation.Verdict) (operation.Record, error) {
	return s.record(ctx, "resolve", v.ID, v.Check(), func(r *record) error {
		next, err := r.op.Resolve(v.State, clone(v.Result), v.Reason)
		return s.core.evidence(r, next, err)
	})
}

// Prune implements [operation.Office].
func (s *Operations) Prune(ctx context.Context, req operation.PruneRequest) (operation.Pruned, error) {
	if err := req.Check(); err != nil {
		return operation.Pruned{}, err
	}
	if err := s.begin(ctx, "prune"); err != nil {
		return operation.Pruned{}, err
	}
	defer s.end()
	return s.core.prune(req), nil
}

// Stats implements [operation.Office].
func (s *Operations) Stats(ctx context.Context) ([]operation.Stat, error) {
	if err := s.begin(ctx, "stats"); err != nil {
		return nil, err
	}
	defer s.end()
	return s.core.stats(), nil
}
