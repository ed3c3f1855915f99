package drill

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/lease"
)

// maxLine bounds one line between the processes of a drill.
const maxLine = 1 << 20

// setup is the first line that a worker is sent.
type setup struct {
	place                // of the store
	Resource *place      `json:"resource,omitempty"` // nil: beside the store
	Run      string      `json:"run"`
	Guard    guard       `json:"guard"`
	Rows     bool        `json:"rows,omitempty"` // the values are in a table that may be protected
	Name     string      `json:"name"`           // of the worker in its round: A, B, ...
	Round    int         `json:"round"`
	Role     role        `json:"role,omitempty"`    // none: a worker that wants a lease
	Service  string      `json:"service,omitempty"` // the URL of what stands before the resource; none: it is reached as tables
	NoTurns  bool        `json:"no_turns,omitempty"`
	Pay      *payerSetup `json:"pay,omitempty"` // of a payer

	Sell *sellerSetup  `json:"sell,omitempty"` // of a seller
	Mail *carrierSetup `json:"mail,omitempty"` // of a carrier of messages
}

// guard is what the resource checks before a write.
type guard string

const (
	guardStrict guard = "strict"     // the claim, in the transaction of the write
	guardMark   guard = "high-water" // the claim's token against the mark, before each read and each write
	guardNone   guard = "none"
	guardOwner  guard = "owner" // only that the owner label is the holder's

	guardPresent guard = "present" // a claim that was presented: triggers of the table check it
	guardForeign guard = "foreign" // of a process that opens no store: it has never heard of leases
)

// command is one order to a worker. Orders are carried out one after the other.
type command struct {
	ID      int         `json:"id"`
	Op      op          `json:"op"`
	Name    string      `json:"name,omitempty"`
	Owner   string      `json:"owner,omitempty"`
	TTL     int64       `json:"ttl_ms,omitempty"`
	Margin  int64       `json:"margin_ms,omitempty"`
	MaxHold int64       `json:"max_hold_ms,omitempty"`
	Wait    int64       `json:"wait_ms,omitempty"` // bound of an acquire that waits
	Try     bool        `json:"try,omitempty"`
	Element string      `json:"element,omitempty"`
	API     bool        `json:"api,omitempty"` // write through the normal API
	Late    bool        `json:"late,omitempty"`
	Inside  inside      `json:"inside,omitempty"`  // where in a transaction of its own it stops, or works on
	Busy    int64       `json:"busy_ms,omitempty"` // how long it works on
	Form    form        `json:"form,omitempty"`    // of a write to a table that may be protected
	Role    string      `json:"role,omitempty"`    // as whom code writes that has never heard of leases
	Claim   string      `json:"claim,omitempty"`
	Content []string    `json:"content,omitempty"`
	Call    string      `json:"call,omitempty"` // of the store, for a fault
	Fault   fault       `json:"fault,omitempty"`
	Times   int         `json:"times,omitempty"` // how often the fault occurs; 0: for ever
	Step    *model.Step `json:"step,omitempty"`
	Sale    *saleOrder  `json:"sale,omitempty"` // of a seller
}

// op is a kind of command.
type op string

const (
	opSession op = "session" // start a session that renews itself
	opAcquire op = "acquire" // acquire Name, waiting unless Try
	opRead    op = "read"    // read the resource, to write it later
	opCheck   op = "check"   // ask the lease once more whether it is held, and keep the claim
	opWrite   op = "write"   // write what was read and Element, under the claim that was kept
	opPause   op = "pause"   // check; stop this process; once continued, write late
	opBusy    op = "busy"    // verify; write; work on inside the transaction; commit
	opEnded   op = "ended"   // wait until the lease's context has ended, and say so
	opAdopt   op = "adopt"   // take over Claim and Content from a process that is gone
	opFault   op = "fault"   // from now on, do Fault to calls of the kind Call
	opRenewed op = "renewed" // wait until the faults of renewals are spent and one was acknowledged
	opDeliver op = "deliver" // hand the release that was held back to the authority, now
	opRelease op = "release" // release the lease
	opClose   op = "close"   // close the session
	opDo      op = "do"      // run work by lease.Do, and reply once it holds; of a carrier: relay
	opCancel  op = "cancel"  // cancel that work's context
	opFinish  op = "finish"  // let that work return
	opStory   op = "story"   // carry out Step
	opServe   op = "serve"   // of a service or a guard: say where it listens
	opPlace   op = "place"   // of a seller: hold the seat
	opSell    op = "sell"    // of a seller: sell it
	opForeign op = "foreign" // write by Form, as Role, without any lease
)

// reply answers a command, or, with ID 0, tells what the authority acknowledged.
type reply struct {
	ID      int           `json:"id"`
	Err     string        `json:"error,omitempty"`
	Code    lease.Code    `json:"code,omitempty"`
	Claim   string        `json:"claim,omitempty"`
	Content []string      `json:"content,omitempty"`
	Answer  *model.Answer `json:"answer,omitempty"`
	AtNS    int64         `json:"at_ns,omitempty"`   // by the clock that all processes of the machine share
	Told    string        `json:"told,omitempty"`    // what the authority answered, as text
	Outcome model.Outcome `json:"outcome,omitempty"` // of a step
	Held    *heldTill     `json:"held,omitempty"`
}

// heldTill is told before the session learns of an acknowledgement: what is acknowledged here is known there.
type heldTill struct {
	SessionNS int64 `json:"session_ns"` // nobody else may be granted before
	HoldNS    int64 `json:"hold_ns"`    // 0: no MaxHold
}

// at is the sooner of the two.
func (h heldTill) at() time.Duration {
	if h.HoldNS > 0 {
		return time.Duration(min(h.SessionNS, h.HoldNS))
	}
	return time.Duration(h.SessionNS)
}

// lines writes JSON, one value a line. Safe for concurrent use.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) send(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.to.Write(append(text, '\n'))
	return err
}

// scanner reads lines of at most longest bytes.
func scanner(from io.Reader, longest int) *bufio.Scanner {
	s := bufio.NewScanner(from)
	s.Buffer(make([]byte, 0, 4096), longest)
	return s
}

// receive reads one value from the next line. At the end of the input it returns io.EOF.
func receive(s *bufio.Scanner, v any) error {
	if !s.Scan() {
		if err := s.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	if err := json.Unmarshal(s.Bytes(), v); err != nil {
		return fmt.Errorf("line %q: %w", s.Bytes(), err)
	}
	return nil
}

func millis(d time.Duration) int64   { return d.Milliseconds() }
func ofMillis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
