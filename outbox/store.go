package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// Every method of the interfaces below is safe for concurrent use. Errors common to all of them: one matching [ErrInvalid] for bad input, nothing changed; [ErrUnavailable] when the request was certainly not
// applied; [ErrUnknown] when it may or may not have been. Every call but Claim may be repeated, which settles it; the messages of a claim whose reply was lost come again at its deadline. A reply is
// given only once what it says is durable, as far as [Guarantees] go. After a call the request's slices and maps are the caller's alone again, and so are the reply's.

// Store is what applications and relays use.
type Store interface {
	// Append writes messages in a transaction of its own, all or none, and returns their ids in order. Stores that have transactions do it in the caller's: that is what an outbox is for.
	//
	// A message whose id is known is not written again, whatever its state; if it is known as another message, the result is a [*MismatchError] and nothing is written. One id twice in a call is [ErrInvalid].
	Append(ctx context.Context, messages []Message) ([]fence.ID, error)

	// Claim hands out pending messages to one relay until req.TTL from now: no other claim gets them before that, unless they are given back. It never waits for messages, nor for other claims.
	//
	// Which of those that are due, and of topics that are not paused, is the store's choice, about the oldest first; nothing that is due is passed over for ever, and a
	// claim beside which nothing else runs gets all that is due, as far as its limits go. Of an ordered key it takes the first pending one and those that follow it,
	// in order, and nothing while one of the key's messages is under another live claim, or its first is not due. A batch is in the order of the positions.
	//
	// A message that was handed out req.MaxAttempts times, and is pending, goes to the dead letters instead, and counts in Batch.Dead. A claim that expired without a verdict counts as an attempt, and
	// is recorded among the message's errors when that is noticed. After [LostBefore] such in a row the message is handed out alone: what it does to a relay, it does to no other message.
	Claim(ctx context.Context, req ClaimRequest) (Batch, error)

	// Settle says what became of messages of a claim. It changes those alone whose latest claim is that one, also when its time has passed, and which are pending: the others are late, change nothing, and are told and counted. A
	// verdict that was recorded under this claim already is not late, and is not recorded again.
	//
	// An ordered message that is given back, or has failed, takes with it those of its key that are behind it in the claim and have no verdict: they are given back.
	Settle(ctx context.Context, req SettleRequest) (Settled, error)

	// Guarantees states what this store keeps.
	Guarantees() Guarantees
}

// Waker is a store that can say that there may be something to claim before a relay would look.
type Waker interface {
	// Await returns when something may have become claimable since the caller's last claim, or after at most that long, or when ctx ends. It is a hint: true may be wrong, and so may false; but
	// what the latest claim has left, of whatever topic, is not told again and again, or a relay would ask without a pause. An error says that hints are not to be had, why, and is
	// no reason not to look.
	Await(ctx context.Context, atMost time.Duration) (bool, error)
}

// Office is for operators.
type Office interface {
	// List returns messages in the order of their positions.
	List(ctx context.Context, req ListRequest) ([]Info, error)

	// Get returns a message with headers and payload, or a [*NotFoundError].
	Get(ctx context.Context, id fence.ID) (Info, error)

	// Topics counts what is pending and dead, in the order of the topics: those with something pending or dead, and those paused. At most MaxList of them, after the given one.
	Topics(ctx context.Context, after string) ([]TopicInfo, error)

	// Pause stops that messages of a topic, or with topic "" of every topic, are claimed, or lets them again. What is claimed already is published, and appending goes on. Saying it again changes the reason.
	Pause(ctx context.Context, req PauseRequest) error

	// Retry makes dead messages pending, with no attempts. An ordered one is claimed before the pending ones of its key that were appended later, but what was delivered meanwhile has been. It changes at most req.Limit and
	// returns how many.
	Retry(ctx context.Context, req MoveRequest) (int, error)

	// Replay makes delivered messages pending, as new, with their ids: a consumer with an inbox that remembers them does nothing. It changes at most req.Limit and returns how many.
	Replay(ctx context.Context, req MoveRequest) (int, error)

	// Prune forgets at most limit messages that were delivered at least delivered ago, or given up at least dead ago (0: keep these), and returns how many. An id that comes again afterwards is a new message.
	Prune(ctx context.Context, req PruneRequest) (int, error)
}

// ClaimRequest asks for messages.
type ClaimRequest struct {
	Claim       fence.ID      // chosen by the relay, a new one for each call
	Relay       string        // 0 to MaxRelay bytes: who, for operators; never proof
	Topics      []string      // at most MaxTopics; none: every topic
	Limit       int           // 1 to MaxBatch
	Bytes       int           // of payloads together, 1 to MaxBatchBytes; one message always fits
	TTL         time.Duration // MinTTL to MaxTTL
	MaxAttempts int           // 1 to MaxAttempts
}

// Batch is what a claim has got.
type Batch struct {
	Claim      fence.ID
	Deliveries []Delivery
	Left       time.Duration // until the deadline, by the store's clock when it answered
	Dead       int           // messages that this call has moved to the dead letters
}

// Expired is the error that is recorded of an attempt whose claim has expired without a verdict.
const Expired = "its claim expired without a verdict"

// Outcome is what became of a delivery. The zero value is none.
type Outcome int

// The outcomes.
const (
	Published Outcome = iota + 1 // the destination has acknowledged it
	Failed                       // it was tried
	Returned                     // it was not tried, or nothing is to be held against it
)

// Verdict is what became of one message.
type Verdict struct {
	Position int64
	Outcome  Outcome
	Error    string        // of a Failed one: cut to MaxError bytes
	RetryIn  time.Duration // of a Failed or Returned one: 0 to MaxRetryIn until it may be claimed again
	Dead     bool          // of a Failed one: give it up
}

// SettleRequest says what became of messages of one claim.
type SettleRequest struct {
	Claim    fence.ID
	Relay    string
	Verdicts []Verdict // 1 to MaxBatch, each position once
}

// Settled is what a settlement has done.
type Settled struct {
	Applied int
	Late    []int64 // positions, in order, about which this claim has nothing to say any more
}

// ListRequest asks for messages that match all that is set.
type ListRequest struct {
	Topic, Key string
	States     []State
	After      int64 // positions after this one
	Limit      int   // 1 to MaxList
	Bodies     bool  // with headers and payloads
}

// TopicInfo is what is known of a topic.
type TopicInfo struct {
	Topic         string // "" for the pause of every topic
	Pending, Dead int64
	Oldest        time.Duration // age of the oldest pending one
	Paused        bool
	Reason        string
}

// PauseRequest pauses or resumes.
type PauseRequest struct {
	Topic  string
	Paused bool
	Reason string // 0 to MaxReason bytes
}

// MoveRequest names messages that match all that is set.
type MoveRequest struct {
	IDs        []fence.ID // at most MaxList; none: whichever
	Topic, Key string
	From, To   int64         // positions, both included; 0: no bound
	Within     time.Duration // delivered, or given up, at most that long ago; 0: whenever
	Limit      int           // 1 to MaxMove
}

// PruneRequest says what to forget.
type PruneRequest struct {
	Delivered time.Duration // at least MinPruneAge
	Dead      time.Duration // at least MinPruneAge, or 0: keep
	Limit     int           // 1 to MaxMove
}

// Guarantees is what a store keeps.
type Guarantees struct {
	Store   string
	Durable bool // what was told survives the process and the machine
	// InTransaction: Append takes part in the caller's own transaction.
	InTransaction bool
}

// String is the outcome as texts use it.
func (o Outcome) String() string {
	if o < Published || o > Returned {
		return fmt.Sprintf("Outcome(%d)", int(o))
	}
	return [...]string{"published", "failed", "returned"}[o-1]
}

// Sink is a destination.
type Sink interface {
	// Publish hands messages to the destination and returns, for each, nil once the destination has acknowledged it, durably as far as it does that, or why not. It may be called again with the same messages, which have the same ids.
	//
	// What is ordered is in order: a sink that sends several at once does not send one of a topic and key before an earlier one of these was acknowledged, and after one of them has failed it does not send those behind it, and says [ErrOutage] for them.
	// An error matching [ErrRefused] says that this message will never be taken; one matching [ErrOutage] that the destination takes nothing now; any other that it may or may not have been published.
	//
	// It looks at ctx.Err, and at [time.Until] of ctx's deadline, before it sends each message, and sends none afterwards, of which it says [ErrOutage]: a process that was stopped may run on before the timer that ends its context has fired, and the
	// messages are another relay's by then. It returns soon after ctx has ended.
	Publish(ctx context.Context, messages []Delivery) []error
}
