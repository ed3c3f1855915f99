package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tenure-go/tenure/fence"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/operation"
)

func (r *reader) operation() error {
	if r.field == "" {
		return nil
	}
	return &operation.InvalidError{Field: r.field, Problem: r.problem}
}

// page is 100 where no limit is asked for.
func page(limit int32) int {
	if limit == 0 {
		return 100
	}
	return int(limit)
}

// instant is nil for the zero time.
func instant(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func (r *reader) instant(field string, m *timestamppb.Timestamp) time.Time {
	if m == nil {
		return time.Time{}
	}
	r.fail(field, m.CheckValid())
	return m.AsTime()
}

// PutRecord writes an operation.
func PutRecord(o operation.Record) *v1.Operation {
	return &v1.Operation{
		Id: o.ID, Kind: o.Kind, Fingerprint: o.Fingerprint[:], State: v1.OperationState(o.State), Attempts: All(o.Attempts, putAttempt), Result: o.Result, Reason: o.Reason,
		CancelWished: o.CancelWished, Conflicts: All(o.Conflicts, func(c operation.Conflict) *v1.Conflict {
			return &v1.Conflict{Attempt: int64(c.Attempt), Result: c.Result, Reason: c.Reason}
		}), Compensates: o.Compensates, NotAfter: instant(o.NotAfter), Request: o.Request, Priority: int32(o.Priority), Order: o.Order, Step: v1.Step(o.Step), Blocked: o.Blocked,
		StepIn: duration(o.StepIn), Age: duration(o.Age), Decided: duration(o.Decided), Kept: v1.Kept(o.Kept), Inquiries: int32(o.Inquiries), ConflictCount: int32(o.ConflictCount), UndoneBy: o.UndoneBy,
	}
}

func putAttempt(a operation.Attempt) *v1.Attempt {
	return &v1.Attempt{
		Number: int64(a.Number), Worker: a.Worker, Known: v1.Known(a.Known), Result: a.Result, Reason: a.Reason, Began: duration(a.Began), Ended: duration(a.Ended),
	}
}

// GetRecord reads it.
func GetRecord(m *v1.Operation) (operation.Record, error) {
	var r reader
	rec := r.record(m)
	return rec, r.operation()
}

func (r *reader) record(m *v1.Operation) operation.Record {
	return operation.Record{
		Operation: operation.Operation{
			ID: m.GetId(), Kind: m.GetKind(), Fingerprint: r.fingerprint(m.GetFingerprint()), State: operation.State(m.GetState()), Attempts: All(m.GetAttempts(), r.attempt), Result: m.GetResult(),
			Reason: m.GetReason(), CancelWished: m.GetCancelWished(), Conflicts: All(m.GetConflicts(), func(c *v1.Conflict) operation.Conflict {
				return operation.Conflict{Attempt: fence.Token(c.GetAttempt()), Result: c.GetResult(), Reason: c.GetReason()}
			}), Compensates: m.GetCompensates(), NotAfter: r.instant("not after", m.GetNotAfter()),
		},
		Request: m.GetRequest(), Priority: int(m.GetPriority()), Order: m.GetOrder(), Step: operation.Step(m.GetStep()), Blocked: m.GetBlocked(), StepIn: r.span("step in", m.GetStepIn()),
		Age: r.span("age", m.GetAge()), Decided: r.span("decided", m.GetDecided()), Kept: operation.Kept(m.GetKept()), Inquiries: int(m.GetInquiries()), ConflictCount: int(m.GetConflictCount()),
		UndoneBy: m.GetUndoneBy(),
	}
}

func (r *reader) attempt(a *v1.Attempt) operation.Attempt {
	return operation.Attempt{
		Number: fence.Token(a.GetNumber()), Worker: a.GetWorker(), Known: operation.Known(a.GetKnown()), Result: a.GetResult(), Reason: a.GetReason(), Began: r.span("began", a.GetBegan()),
		Ended: r.span("ended", a.GetEnded()),
	}
}

func (r *reader) fingerprint(b []byte) (f operation.Fingerprint) {
	if len(b) != len(f) {
		r.field, r.problem = "fingerprint", "not 32 bytes"
	}
	copy(f[:], b)
	return f
}

// PutSubmit writes the request.
func PutSubmit(s operation.SubmitRequest) *v1.SubmitOperationRequest {
	return &v1.SubmitOperationRequest{
		Id: s.ID, Kind: s.Kind, Request: s.Request, Fingerprint: s.Fingerprint[:], Priority: Int32(s.Priority), RunIn: duration(s.RunIn), Order: s.Order, Compensates: s.Compensates,
	}
}

// GetSubmit reads it, and makes the fingerprint that the caller has left to it.
func GetSubmit(m *v1.SubmitOperationRequest) (operation.SubmitRequest, error) {
	var r reader
	s := operation.SubmitRequest{
		ID: m.GetId(), Kind: m.GetKind(), Request: m.GetRequest(), Priority: int(m.GetPriority()), RunIn: r.span("run in", m.GetRunIn()), Order: m.GetOrder(), Compensates: m.GetCompensates(),
	}
	if len(m.GetFingerprint()) == 0 {
		s.Fingerprint = operation.FingerprintOf(s.Kind, s.Request)
	} else {
		s.Fingerprint = r.fingerprint(m.GetFingerprint())
	}
	return s, r.operation()
}

func putAnswer(a operation.Answer) *v1.Evidence {
	return &v1.Evidence{Known: v1.Known(a.Known), Result: a.Result, Reason: a.Reason, Final: a.Final}
}

func getAnswer(m *v1.Evidence) operation.Answer {
	return operation.Answer{Known: operation.Known(m.GetKnown()), Result: m.GetResult(), Reason: m.GetReason(), Final: m.GetFinal()}
}

// PutResponse writes evidence.
func PutResponse(s operation.Response) *v1.RespondOperationRequest {
	return &v1.RespondOperationRequest{Id: s.ID, Number: int64(s.Number), Evidence: putAnswer(s.Answer)}
}

// GetResponse reads it.
func GetResponse(m *v1.RespondOperationRequest) operation.Response {
	return operation.Response{ID: m.GetId(), Number: fence.Token(m.GetNumber()), Answer: getAnswer(m.GetEvidence())}
}

// PutRef names an attempt.
func PutRef(f operation.Ref) *v1.AttemptRef {
	return &v1.AttemptRef{Id: f.ID, Number: int64(f.Number)}
}

// GetRef reads it.
func GetRef(m *v1.AttemptRef) operation.Ref {
	return operation.Ref{ID: m.GetId(), Number: fence.Token(m.GetNumber())}
}

// PutClaimRequest writes the request.
func PutClaimRequest(c operation.ClaimRequest) *v1.ClaimOperationsRequest {
	return &v1.ClaimOperationsRequest{Worker: c.Worker, Ttl: duration(c.TTL), Limit: Int32(c.Limit), Id: c.ID, Kinds: All(c.Kinds, func(k operation.KindClaim) *v1.KindClaim {
		m := &v1.KindClaim{
			Kind: k.Kind, Limit: Int32(k.Limit), Timeout: duration(k.Timeout), Window: duration(k.Window), NotAfter: duration(k.NotAfter), MaxAttempts: Int32(k.MaxAttempts), Asks: k.Asks, Undoes: k.Undoes,
		}
		if k.Window == operation.Forever {
			m.Window, m.WindowForever = nil, true
		}
		return m
	})}
}

// GetClaimRequest reads it.
func GetClaimRequest(m *v1.ClaimOperationsRequest) (operation.ClaimRequest, error) {
	var r reader
	c := operation.ClaimRequest{Worker: m.GetWorker(), TTL: r.span("ttl", m.GetTtl()), Limit: int(m.GetLimit()), ID: m.GetId(), Kinds: All(m.GetKinds(), func(k *v1.KindClaim) operation.KindClaim {
		claim := operation.KindClaim{
			Kind: k.GetKind(), Limit: int(k.GetLimit()), Timeout: r.span("timeout", k.GetTimeout()), Window: r.span("window", k.GetWindow()), NotAfter: r.span("not after", k.GetNotAfter()),
			MaxAttempts: int(k.GetMaxAttempts()), Asks: k.GetAsks(), Undoes: k.GetUndoes(),
		}
		if k.GetWindowForever() {
			claim.Window = operation.Forever
		}
		return claim
	})}
	return c, r.operation()
}

// PutJob writes an attempt that has begun.
func PutJob(j operation.Job) *v1.Job {
	return &v1.Job{
		Ref: PutRef(j.Ref), Kind: j.Kind, Ordinal: int32(j.Ordinal), Request: j.Request, Unsure: j.Unsure, Priority: int32(j.Priority), Order: j.Order, Remaining: duration(j.Remaining),
		TimeLeft: duration(j.TimeLeft), NotAfter: instant(j.NotAfter),
	}
}

// GetJob reads it.
func GetJob(m *v1.Job) (operation.Job, error) {
	var r reader
	j := operation.Job{
		Ref: GetRef(m.GetRef()), Kind: m.GetKind(), Ordinal: int(m.GetOrdinal()), Request: m.GetRequest(), Unsure: m.GetUnsure(), Priority: int(m.GetPriority()), Order: m.GetOrder(),
		Remaining: r.span("remaining", m.GetRemaining()), TimeLeft: r.span("time left", m.GetTimeLeft()), NotAfter: r.instant("not after", m.GetNotAfter()),
	}
	return j, r.operation()
}

// PutCompletion writes a worker's report.
func PutCompletion(c operation.Completion) *v1.Completion {
	return &v1.Completion{Ref: PutRef(c.Ref), Evidence: putAnswer(c.Answer), RetryIn: duration(c.RetryIn)}
}

// GetCompletion reads it.
func GetCompletion(m *v1.Completion) (operation.Completion, error) {
	var r reader
	c := operation.Completion{Ref: GetRef(m.GetRef()), Answer: getAnswer(m.GetEvidence()), RetryIn: r.span("retry in", m.GetRetryIn())}
	return c, r.operation()
}
