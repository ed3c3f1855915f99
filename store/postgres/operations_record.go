package postgres

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

type interval64 = pgtype.Interval

// interval0 is an interval that is 0 for 0. What is longer than the server's instants reach, such as [operation.Forever], stays longer than any limit.
func interval0(d time.Duration) interval64 {
	return interval64{Microseconds: d.Microseconds(), Valid: true}
}

// recordColumns of tenure.op_record.
const recordColumns = `outcome, id, kind, fingerprint, state, step, step_in, priority, ord, blocked, age, decided, kept, inquiries, conflicts, wished, compensates, undone_by, not_after, reason, ` +
	`request, result, numbers, knowns, workers, began, ended, reasons, results, conflict_attempts, conflict_reasons, conflict_results`

// opRecord is tenure.op_record: an operation, and what became of the call.
type opRecord struct {
	operation.Record
	outcome string

	print                                []byte
	state, step, kept                    string
	stepIn, age, decided                 interval64
	order, compensates, undoneBy, reason *string
	notAfter                             *time.Time
	numbers, conflictAttempts            []int64
	knowns, workers, why, conflictWhy    []string
	began, ended                         []interval64
	answers, conflictAnswers             [][]byte
}

func (r *opRecord) dest() []any {
	return []any{
		&r.outcome, &r.ID, &r.Kind, &r.print, &r.state, &r.step, &r.stepIn, &r.Priority, &r.order, &r.Blocked, &r.age, &r.decided, &r.kept, &r.Inquiries, &r.ConflictCount,
		&r.CancelWished, &r.compensates, &r.undoneBy, &r.notAfter, &r.reason, &r.Request, &r.Result, &r.numbers, &r.knowns, &r.workers, &r.began, &r.ended, &r.why, &r.answers,
		&r.conflictAttempts, &r.conflictWhy, &r.conflictAnswers,
	}
}

// read makes a record of what was scanned.
func (r *opRecord) read() error {
	r.State, r.Step, r.Kept = stateOf(r.state), stepOf(r.step), keptOf(r.kept)
	if r.State == 0 || r.Step == 0 || r.Kept == 0 || copy(r.Fingerprint[:], r.print) != len(r.Fingerprint) {
		return fmt.Errorf("the operation %q is told as %s, %s, %s, which is not of this version of the schema", r.ID, r.state, r.step, r.kept)
	}
	r.Order, r.Compensates, r.UndoneBy, r.Reason = text(r.order), text(r.compensates), text(r.undoneBy), text(r.reason)
	r.StepIn, r.Age, r.Decided = duration(r.stepIn), duration(r.age), duration(r.decided)
	if r.notAfter != nil {
		r.NotAfter = r.notAfter.UTC()
	}
	r.Attempts = nil
	for i, number := range r.numbers {
		a := operation.Attempt{Number: fence.Token(number), Worker: r.workers[i], Known: knownOf(r.knowns[i]), Reason: r.why[i], Began: duration(r.began[i]), Ended: duration(r.ended[i])}
		if r.answers != nil {
			a.Result = r.answers[i]
		}
		r.Attempts = append(r.Attempts, a)
	}
	r.Conflicts = nil
	for i, number := range r.conflictAttempts {
		c := operation.Conflict{Attempt: fence.Token(number), Reason: r.conflictWhy[i]}
		if r.conflictAnswers != nil {
			c.Result = r.conflictAnswers[i]
		}
		r.Conflicts = append(r.Conflicts, c)
	}
	return nil
}

// Texts of the schema, which are those of package operation. 0: none of them.

func stateOf(text string) operation.State { return named(text, operation.Pending, operation.Cancelled) }
func stepOf(text string) operation.Step   { return named(text, operation.Idle, operation.Undo) }
func knownOf(text string) operation.Known { return named(text, operation.NotSent, operation.Effective) }

func named[T interface {
	~int
	String() string
}](text string, from, to T) T {
	for v := from; v <= to; v++ {
		if v.String() == text {
			return v
		}
	}
	return 0
}

func keptOf(text string) operation.Kept {
	return map[string]operation.Kept{"whole": operation.Whole, "without bodies": operation.WithoutBodies, "verdict only": operation.VerdictOnly}[text]
}

// findingText is a finding as the schema's functions read it.
func findingText(f operation.Finding) string {
	return [...]string{"", "found", "closed", "past", "not observed"}[f]
}

// found is the error of evidence that was recorded against a decision, or err.
func found(r *opRecord, err error) error {
	if err == nil && r.outcome == "decided" {
		return &operation.StateError{Kind: operation.ErrDecided, ID: r.ID, State: r.State, What: "the finding of an inquiry"}
	}
	return err
}

// staleAttempt is the attempt that a response was taken for.
func staleAttempt(r *opRecord, resp operation.Response) fence.Token {
	if resp.Number == 0 {
		return r.Current()
	}
	return resp.Number
}
