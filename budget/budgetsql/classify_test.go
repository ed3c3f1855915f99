package budgetsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/tenure-go/tenure/budget"
)

var errOwn = errors.New("the caller's own")

// answered is an answer of a server, as drivers have it.
type answered string

func (a answered) Error() string    { return "answered " + string(a) }
func (a answered) SQLState() string { return string(a) }

// unsent is what a driver says of an error before anything was sent.
type unsent struct {
	safe bool
	err  error
}

func (u *unsent) Error() string     { return "unsent: " + u.err.Error() }
func (u *unsent) SafeToRetry() bool { return u.safe }
func (u *unsent) Unwrap() error     { return u.err }

// TestClassify: what each error says, alone and wrapped.
func TestClassify(t *testing.T) {
	lost := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	stuck := &net.OpError{Op: "write", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for name, c := range map[string]struct {
		err   error
		class budget.Class // 0: it is returned as it is
		again bool
		phase budget.Phase
	}{
		"unique":                    {answered("23505"), budget.Refused, false, ""},
		"cancelled by the server":   {answered("57014"), budget.Refused, false, ""},
		"serialisation":             {answered("40001"), budget.Refused, true, ""},
		"deadlock":                  {answered("40P01"), budget.Refused, true, ""},
		"completion unknown":        {answered("40003"), budget.Unknown, false, budget.PhaseAnswer},
		"lock":                      {answered("55P03"), budget.Refused, true, ""},
		"too many connections":      {answered("53300"), budget.Refused, true, ""},
		"disk full":                 {answered("53100"), budget.Unknown, false, budget.PhaseAnswer},
		"starting":                  {answered("57P03"), budget.Refused, true, ""},
		"shut down":                 {answered("57P01"), budget.Unknown, false, budget.PhaseAnswer},
		"crashed":                   {answered("57P02"), budget.Unknown, false, budget.PhaseAnswer},
		"connection failure":        {answered("08006"), budget.Unknown, false, budget.PhaseAnswer},
		"transaction unknown":       {answered("08007"), budget.Unknown, false, budget.PhaseAnswer},
		"internal":                  {answered("XX000"), budget.Unknown, false, budget.PhaseAnswer},
		"input and output":          {answered("58030"), budget.Unknown, false, budget.PhaseAnswer},
		"no state":                  {answered(""), budget.Refused, false, ""},
		"safe":                      {&unsent{true, lost}, budget.NotSent, true, ""},
		"not safe":                  {&unsent{false, lost}, budget.Unknown, false, budget.PhaseAnswer},
		"bad connection":            {driver.ErrBadConn, budget.NotSent, true, ""},
		"connection done":           {sql.ErrConnDone, budget.Unknown, false, budget.PhaseAnswer},
		"deadline":                  {context.DeadlineExceeded, budget.Unknown, false, budget.PhaseAnswer},
		"cancelled":                 {context.Canceled, budget.Unknown, false, budget.PhaseAnswer},
		"end":                       {io.EOF, budget.Unknown, false, budget.PhaseAnswer},
		"unexpected end":            {io.ErrUnexpectedEOF, budget.Unknown, false, budget.PhaseAnswer},
		"closed":                    {net.ErrClosed, budget.Unknown, false, budget.PhaseAnswer},
		"reading":                   {lost, budget.Unknown, false, budget.PhaseAnswer},
		"writing":                   {stuck, budget.Unknown, false, budget.PhaseSending},
		"no rows":                   {sql.ErrNoRows, 0, false, ""},
		"transaction done":          {sql.ErrTxDone, 0, false, ""},
		"the caller's own":          {errOwn, 0, false, ""},
		"known":                     {&budget.Error{Class: budget.Refused, Again: true, Err: errOwn}, budget.Refused, true, ""},
		"commit lost, rolled back":  {errors.Join(lost, &unsent{true, errOwn}), budget.Unknown, false, budget.PhaseAnswer},
		"the same, other order":     {errors.Join(&unsent{true, errOwn}, lost), budget.Unknown, false, budget.PhaseAnswer},
		"lost, and another call":    {errors.Join(&budget.Error{Class: budget.NotSent, Err: errOwn}, lost), budget.Unknown, false, budget.PhaseAnswer},
		"lost, and another gave up": {errors.Join(&budget.GaveUpError{Why: budget.ErrAttempts, Last: errOwn, Real: errOwn, Class: budget.NotSent}, lost), budget.Unknown, false, budget.PhaseAnswer},
		"refused, and unsent":       {errors.Join(&unsent{true, errOwn}, answered("40001")), budget.Refused, true, ""},
		"own, and refused":          {errors.Join(errOwn, answered("23505")), budget.Refused, false, ""},
		"own twice":                 {errors.Join(errOwn, sql.ErrNoRows), 0, false, ""},
	} {
		for wrapped, err := range map[string]error{"": c.err, ", wrapped": fmt.Errorf("charging: %w", c.err)} {
			got := Classify(err)
			var known *budget.Error
			switch {
			case !errors.Is(got, c.err):
				t.Errorf("%s%s: %v has lost its cause", name, wrapped, got)
			case c.class == 0 && got != err: //nolint:errorlint // the very same
				t.Errorf("%s%s: not as it was: %v", name, wrapped, got)
			case c.class != 0 && (budget.ClassOf(got) != c.class || !errors.As(got, &known) || known.Class != c.class || known.Again != c.again || known.Phase != c.phase || known.Err == nil):
				t.Errorf("%s%s: %+v", name, wrapped, known)
			}
		}
	}
	if Classify(nil) != nil {
		t.Error("nil is an error")
	}
}

// TestCall: without a connection nothing was sent, whatever the reason; with one the statement's error counts.
func TestCall(t *testing.T) {
	used := 0
	use := func(_ context.Context, conn string) error { used++; return answered(conn) }
	for name, c := range map[string]struct {
		err   error
		phase budget.Phase
	}{
		"exhausted":      {context.DeadlineExceeded, budget.PhaseConnection},
		"no such name":   {&net.OpError{Op: "dial", Err: &net.DNSError{}}, budget.PhaseDNS},
		"nobody listens": {&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, budget.PhaseConnect},
		"refused":        {answered("53300"), budget.PhaseConnection},
	} {
		err := Call(t.Context(), func(context.Context) (string, error) { return "", c.err }, use)
		var known *budget.Error
		if !errors.As(err, &known) || known.Class != budget.NotSent || known.Phase != c.phase || !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if used != 0 {
		t.Errorf("used %d times without a connection", used)
	}
	if err := Call(t.Context(), func(context.Context) (string, error) { return "40001", nil }, use); budget.ClassOf(err) != budget.Refused || used != 1 {
		t.Errorf("%v", err)
	}
	if err := Call(t.Context(), func(context.Context) (string, error) { return "", nil }, func(context.Context, string) error { return nil }); err != nil {
		t.Error(err)
	}
}
