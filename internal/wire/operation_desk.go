package wire

import (
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/tenure-go/tenure/fence"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/operation"
)

// GetRenewAttempts reads which claims to keep.
func GetRenewAttempts(m *v1.RenewAttemptsRequest) (operation.RenewRequest, error) {
	var r reader
	req := operation.RenewRequest{Refs: All(m.GetRefs(), GetRef), TTL: r.span("ttl", m.GetTtl())}
	return req, r.operation()
}

// PutRenewAttempts writes it.
func PutRenewAttempts(req operation.RenewRequest) *v1.RenewAttemptsRequest {
	return &v1.RenewAttemptsRequest{Refs: All(req.Refs, PutRef), Ttl: duration(req.TTL)}
}

// GetDue reads what a reconciler asks for.
func GetDue(m *v1.DueOperationsRequest) (operation.DueRequest, error) {
	var r reader
	req := operation.DueRequest{Kinds: m.GetKinds(), Limit: int(m.GetLimit()), Hold: r.span("hold", m.GetHold())}
	return req, r.operation()
}

// PutDue writes it.
func PutDue(req operation.DueRequest) *v1.DueOperationsRequest {
	return &v1.DueOperationsRequest{Kinds: req.Kinds, Limit: Int32(req.Limit), Hold: duration(req.Hold)}
}

// GetInquiry reads what an inquiry found.
func GetInquiry(m *v1.InquiredOperationRequest) (operation.Inquiry, error) {
	var r reader
	i := operation.Inquiry{
		ID: m.GetId(), Finding: operation.Finding(m.GetFinding()), AsOf: fence.Token(m.GetAsOf()), Result: m.GetResult(), Reason: m.GetReason(), AskIn: r.span("ask in", m.GetAskIn()),
	}
	return i, r.operation()
}

// PutInquiry writes it.
func PutInquiry(i operation.Inquiry) *v1.InquiredOperationRequest {
	return &v1.InquiredOperationRequest{Id: i.ID, Finding: v1.Finding(i.Finding), AsOf: int64(i.AsOf), Result: i.Result, Reason: i.Reason, AskIn: duration(i.AskIn)}
}

// GetOperationList reads which operations to list.
func GetOperationList(m *v1.ListOperationsRequest) operation.ListRequest {
	return operation.ListRequest{
		Kind: m.GetKind(), States: All(m.GetStates(), func(s v1.OperationState) operation.State { return operation.State(s) }), Conflicts: m.GetConflicts(), Wished: m.GetWished(), Prefix: m.GetPrefix(),
		After: m.GetAfter(), Limit: page(m.GetLimit()), Bodies: m.GetBodies(),
	}
}

// PutOperationList writes it.
func PutOperationList(req operation.ListRequest) *v1.ListOperationsRequest {
	return &v1.ListOperationsRequest{
		Kind: req.Kind, States: All(req.States, func(s operation.State) v1.OperationState { return v1.OperationState(s) }), Conflicts: req.Conflicts, Wished: req.Wished, Prefix: req.Prefix,
		After: req.After, Limit: Int32(req.Limit), Bodies: req.Bodies,
	}
}

// GetOperationPrune reads what to forget.
func GetOperationPrune(m *v1.PruneOperationsRequest) (operation.PruneRequest, error) {
	var r reader
	req := operation.PruneRequest{Bodies: r.span("bodies", m.GetBodies()), Records: r.span("records", m.GetRecords()), Forget: r.span("forget", m.GetForget()), Limit: int(m.GetLimit())}
	return req, r.operation()
}

// PutOperationPrune writes it.
func PutOperationPrune(req operation.PruneRequest) *v1.PruneOperationsRequest {
	return &v1.PruneOperationsRequest{Bodies: duration(req.Bodies), Records: duration(req.Records), Forget: duration(req.Forget), Limit: Int32(req.Limit)}
}

// PutStat writes a count.
func PutStat(s operation.Stat) *v1.OperationStat {
	return &v1.OperationStat{Kind: s.Kind, State: v1.OperationState(s.State), Count: int64(s.Count), Oldest: duration(s.Oldest), Stuck: int64(s.Stuck)}
}

// GetStat reads it.
func GetStat(m *v1.OperationStat) (operation.Stat, error) {
	var r reader
	s := operation.Stat{Kind: m.GetKind(), State: operation.State(m.GetState()), Count: int(m.GetCount()), Oldest: r.span("oldest", m.GetOldest()), Stuck: int(m.GetStuck())}
	return s, r.operation()
}

// GetWait reads for how long to wait: at most and by default 30 seconds.
func GetWait(m *v1.WaitOperationRequest) (time.Duration, error) {
	const most = 30 * time.Second
	var r reader
	asked := r.span("at most", m.GetAtMost())
	if asked < 0 {
		r.field, r.problem = "at most", "negative"
	}
	if asked == 0 || asked > most {
		asked = most
	}
	return asked, r.operation()
}

// OperationErrorOf is an error of package operation as the error of a call.
func OperationErrorOf(err error) error {
	if err == nil {
		return nil
	}
	if f := OperationFault(err); f != nil {
		return faulty(f, err)
	}
	return connect.NewError(connect.CodeUnknown, err)
}

// OperationFault is an error of package operation as a message, or nil.
func OperationFault(err error) *v1.Fault {
	if f := openFault[*operation.UnknownError, *operation.UnavailableError](err, func(e *operation.UnknownError) *v1.Fault {
		return call(codeUnknown, e.Op, e.ID, e.Err, "")
	}, func(e *operation.UnavailableError) *v1.Fault { return call(codeUnavailable, e.Op, "", e.Err, "") }); f != nil {
		return f
	}
	var (
		invalid  *operation.InvalidError
		mismatch *operation.MismatchError
		state    *operation.StateError
		stale    *operation.StaleError
		missing  *operation.NotFoundError
	)
	switch {
	case errors.As(err, &invalid):
		return invalidFault(invalid.Field, invalid.Problem, false)
	case errors.As(err, &mismatch):
		return &v1.Fault{Code: codeMismatch, Facts: &v1.Fault_Mismatch{Mismatch: &v1.MismatchFault{What: mismatch.What, Id: mismatch.ID}}}
	case errors.As(err, &state):
		code := "decided"
		if errors.Is(state.Kind, operation.ErrUndecided) {
			code = "undecided"
		}
		return operationFault(code, &v1.OperationFault{Id: state.ID, State: v1.OperationState(state.State), What: state.What})
	case errors.As(err, &stale):
		return operationFault("stale", &v1.OperationFault{Id: stale.ID, Attempt: int64(stale.Attempt), Newer: int64(stale.Newer), State: v1.OperationState(stale.State)})
	case errors.As(err, &missing):
		return operationFault("not_found", &v1.OperationFault{Id: missing.ID})
	}
	return nil
}

func operationFault(code string, facts *v1.OperationFault) *v1.Fault {
	return &v1.Fault{Code: code, Facts: &v1.Fault_Operation{Operation: facts}}
}

// OperationError is what OperationFault was made of, or nil for a fault that this version does not know, and for none.
func OperationError(f *v1.Fault) error {
	if !fits(f) {
		return nil
	}
	switch facts := f.GetFacts().(type) {
	case *v1.Fault_Invalid:
		return &operation.InvalidError{Field: facts.Invalid.GetField(), Problem: facts.Invalid.GetProblem()}
	case *v1.Fault_Mismatch:
		return &operation.MismatchError{ID: facts.Mismatch.GetId(), What: facts.Mismatch.GetWhat()}
	case *v1.Fault_Call:
		c := facts.Call
		if f.GetCode() == codeUnknown {
			return &operation.UnknownError{Op: c.GetOp(), ID: c.GetId(), Err: errors.New(c.GetCause())}
		}
		return &operation.UnavailableError{Op: c.GetOp(), Err: errors.New(c.GetCause())}
	case *v1.Fault_Operation:
		o := facts.Operation
		state := operation.State(o.GetState())
		switch f.GetCode() {
		case "decided":
			return &operation.StateError{Kind: operation.ErrDecided, ID: o.GetId(), State: state, What: o.GetWhat()}
		case "undecided":
			return &operation.StateError{Kind: operation.ErrUndecided, ID: o.GetId(), State: state, What: o.GetWhat()}
		case "stale":
			return &operation.StaleError{ID: o.GetId(), Attempt: fence.Token(o.GetAttempt()), Newer: fence.Token(o.GetNewer()), State: state}
		case "not_found":
			return &operation.NotFoundError{ID: o.GetId()}
		}
	}
	return nil
}

// PutOperationGuarantees writes what a store of operations keeps.
func PutOperationGuarantees(g operation.Guarantees) *v1.OperationGuarantees {
	return &v1.OperationGuarantees{Store: g.Store, Durable: g.Durable, Failover: g.Failover, MaxBody: Int32(g.MaxBody), Deduplicates: duration(g.Deduplicates)}
}

// GetOperationGuarantees reads it.
func GetOperationGuarantees(m *v1.OperationGuarantees) (operation.Guarantees, error) {
	var r reader
	g := operation.Guarantees{
		Store: m.GetStore(), Durable: m.GetDurable(), Failover: m.GetFailover(), MaxBody: int(m.GetMaxBody()), Deduplicates: r.span("deduplicates", m.GetDeduplicates()),
	}
	return g, r.operation()
}
