package model

import (
	"time"

	"github.com/tenure-go/tenure/fence"
)

// PayFacts is what is known of all rounds of a drill about payments: from the ledger of the provider, from the store of operations, and from a table of the business's own beside it.
type PayFacts struct {
	Effects    []Effect   `json:"effects"`  // in the order in which money moved
	Requests   []Request  `json:"requests"` // in the order in which the provider read them
	Operations []Recorded `json:"operations"`
	Writes     []Write    `json:"writes"` // of the business's table, by the number of the attempt in whose name they were made
	Answers    []Answer   `json:"answers"`
	Events     []Event    `json:"events"`
}

// What is asked of a provider. A transfer is money that is given back by itself, not as the refund of a charge.
const (
	PayCharge   = "charge"
	PayRefund   = "refund"
	PayTransfer = "transfer"
)

// Effect is money that moved, by the ledger.
type Effect struct {
	Round int    `json:"round"`
	Order int64  `json:"order"` // among all
	What  string `json:"what"`
}

// Request is one that the provider has read.
type Request struct {
	Round    int         `json:"round"`
	What     string      `json:"what"`
	Attempt  fence.Token `json:"attempt,omitempty"` // that it says it belongs to
	Inquiry  bool        `json:"inquiry,omitempty"` // it asked about a key
	OtherKey bool        `json:"other_key,omitempty"`
	// Effective: it was answered that the effect happened. Unheard: no such answer was given to the connection.
	Effective bool `json:"effective,omitempty"`
	Unheard   bool `json:"unheard,omitempty"`
}

// Recorded is an operation as the store tells it in the end.
type Recorded struct {
	Round     int           `json:"round"`
	Name      string        `json:"name"` // PayCharge or PayRefund
	State     string        `json:"state"`
	Known     []string      `json:"known"` // of its attempts, in their order
	Numbers   []fence.Token `json:"numbers"`
	Conflicts int           `json:"conflicts"`
	Listed    bool          `json:"listed"` // among those with conflicts
	Wished    bool          `json:"wished"` // somebody wished to cancel it
	Undone    bool          `json:"undone"` // and it is compensated
}

// What a business's table says of a charge, as the elements of its writes.
const (
	RowDone      = "done"
	RowFailed    = "failed"
	RowCancelled = "cancelled"
)

// The events of a drill about payments.
const (
	Stopped   What = "stopped"   // the kernel said that the process was stopped at the point
	Killed    What = "killed"    // it was killed there
	Continued What = "continued" // it went on, when others had
	LateTold  What = "late"      // an answer came after the worker had given up
	Wished    What = "wished"    // somebody asked to cancel, and could not be told that it is cancelled
	ClaimTill What = "claim"     // until when the claim of who was killed lasts, at the earliest
	Moved     What = "moved"     // the operation was seen in other hands: attempted, asked about or decided
)

// Damage is a kind of it, as the resource shows it. The empty one is none.
type Damage string

// The kinds of damage.
const (
	ChargedTwice      Damage = "charged twice"
	DoneUncharged     Damage = "recorded as done and not charged"
	ChargedUnrecorded Damage = "charged and recorded as not" // and nobody is told, and nothing is given back
	PaidForNothing    Damage = "paid back for nothing"       // more than was charged, or before it was
	StaleRow          Damage = "row of a stale attempt"      // accepted after one of a newer attempt
	DecidedTwice      Damage = "decided twice"               // a decision was replaced by another one
)

// Damages are all kinds, in the order of a report.
func Damages() []Damage {
	return []Damage{ChargedTwice, DoneUncharged, ChargedUnrecorded, PaidForNothing, StaleRow, DecidedTwice}
}

// PayWant is what each round of a variant must have come to.
type PayWant struct {
	Name string `json:"name"`
	// Damage must be seen in each round: the drill was played without what prevents it. Empty: there must be none of any kind, and all that follows is compared.
	Damage Damage `json:"damage,omitempty"`
	// Table: what was decided is what the business's table says last, not the state of the operation.
	Table bool `json:"table,omitempty"`

	// What makes a round valid: the events that it must have; Lost: the first attempt had its effect, and no answer to that request was given to its connection; Unsent: none of its requests was read.
	Saw    []What `json:"saw,omitempty"`
	Lost   bool   `json:"lost,omitempty"`
	Unsent bool   `json:"unsent,omitempty"`

	State     string   `json:"state,omitempty"`      // of the charge
	Known     []string `json:"known,omitempty"`      // of its attempts
	EachKnown string   `json:"each_known,omitempty"` // of each of its attempts, at least two, however many there were; empty: Known says it
	Charges   int      `json:"charges,omitempty"`
	Refunds   int      `json:"refunds,omitempty"`
	Conflicts int      `json:"conflicts,omitempty"`
	Rows      []string `json:"rows,omitempty"`    // writers, in the order of what they wrote to the table
	Refused   []string `json:"refused,omitempty"` // part of what each was told that was refused, in order
	// Asked is the least, and MostAsked the greatest number of inquiries about the charge.
	Asked     int `json:"asked,omitempty"`
	MostAsked int `json:"most_asked,omitempty"`
	// Moved is within which time after the end of a killed worker's claim the operation must be in other hands; 0: not asked.
	Moved time.Duration `json:"moved,omitempty"`
}

// PayRound is a round that was played: of which variant, and whether it counts.
type PayRound struct {
	Round   int  `json:"round"`
	Variant int  `json:"variant"`
	Void    bool `json:"void,omitempty"`
}

// PayDemand is what a drill about payments promised.
type PayDemand struct {
	Rounds   int        `json:"rounds"` // of each variant, that count
	Played   []PayRound `json:"played"`
	Variants []PayWant  `json:"variants"`
}

// Payments is what a drill about payments came to.
type Payments struct {
	Charges   int `json:"charges"` // that the provider made
	Refunds   int `json:"refunds"`
	Transfers int `json:"transfers"`
	Requests  int `json:"requests"` // to move money
	Inquiries int `json:"inquiries"`
	Conflicts int `json:"conflicts"` // recorded and listed
	Refused   int `json:"refused"`   // who asked the store for what must not be

	DamagedRounds int            `json:"damaged_rounds"`
	Damage        map[Damage]int `json:"damage"` // rounds with it, of each kind
	Moved         *Handover      `json:"moved,omitempty"`
	Variants      []PayVariant   `json:"variants"`
}

// Judged is how many rounds were judged.
func (p *Payments) Judged() int {
	n := 0
	for _, v := range p.Variants {
		n += v.Rounds
	}
	return n
}

// PayVariant is what one variant came to.
type PayVariant struct {
	Name    string `json:"name"`
	Shows   string `json:"shows,omitempty"`
	Rounds  int    `json:"rounds"`
	Charges int    `json:"charges"`
	Refunds int    `json:"refunds"`
	Damaged int    `json:"damaged"`
	OK      bool   `json:"ok"`
}
