package operation

import (
	"time"

	"github.com/tenure-go/tenure/fence"
)

// Limits that every store keeps.
const (
	MaxID        = 256     // bytes of an id
	MaxKind      = 128     // bytes of a kind
	MaxBody      = 1 << 20 // bytes of a request, and of a result
	MaxReason    = 2048    // bytes of a reason; a longer one is cut by whoever reports it, see [Cut]
	MaxWorker    = 256     // bytes of a worker's label
	MaxOrder     = 256     // bytes of a key of order
	MaxPriority  = 3
	MaxKinds     = 64 // kinds in one Claim or Due
	MaxBatch     = 1000
	MaxList      = 1000
	MaxAttempts  = 1000 // attempts of one operation, those that were not sent included
	MaxConflicts = 16   // that are kept of one operation; the others are counted
	MaxDelay     = 366 * 24 * time.Hour
	MaxTTL       = time.Hour // of a claim

	// MinForget is the least time for which the id, the fingerprint and the verdict of a decided operation are kept.
	MinForget = 24 * time.Hour

	// Forever is a [KindClaim.Window] without an end: the effect is the same however often it is asked for.
	Forever = time.Duration(1<<63 - 1)
)

// SubmitRequest asks for an operation.
type SubmitRequest struct {
	ID          string // the caller's: 1 to MaxID bytes of UTF-8 without control characters; one request, ever
	Kind        string // 1 to MaxKind bytes, likewise
	Request     []byte // at most MaxBody bytes
	Fingerprint Fingerprint
	Priority    int           // 0, the least urgent, to MaxPriority
	RunIn       time.Duration // do not begin before; 0: at once
	// Order is a key, or empty: operations of one key are begun one after the other, in the order in which they were submitted, each when the one before it is decided.
	Order       string
	Compensates string // the id of the operation that this one undoes, or empty
}

// Submitted is the reply to a submission.
type Submitted struct {
	Record
	Known bool // it was submitted before
}

// Record is an operation as a store tells it. Times are durations by the store's clock, as of its reply.
type Record struct {
	Operation
	Request  []byte
	Priority int
	Order    string
	Step     Step
	Blocked  bool          // by an earlier operation of its Order
	StepIn   time.Duration // until the step is due; 0: it is due; meaningless for Idle
	Age      time.Duration // since it was submitted
	Decided  time.Duration // since it was decided; 0 while it is not
	Kept     Kept
	// Inquiries is how often it was handed to a reconciler to be asked about.
	Inquiries int
	// ConflictCount is of all conflicts, also of those that are not kept.
	ConflictCount int
	// UndoneBy is the id of the operation that compensates this one, because its cancelling was wished for; or empty.
	UndoneBy string
}

// Kept says how much of a decided operation is left. The zero value is none.
type Kept int

// The stages of forgetting.
const (
	Whole         Kept = iota + 1 // nothing was forgotten
	WithoutBodies                 // the request and the results were
	VerdictOnly                   // only the id, the kind, the fingerprint and the state are left
)

// ClaimRequest asks for work.
type ClaimRequest struct {
	Worker string        // a label for people, never proof
	TTL    time.Duration // of the claims, unless renewed: 1 ms to MaxTTL
	Limit  int           // 1 to MaxBatch
	Kinds  []KindClaim   // 1 to MaxKinds different ones
	ID     string        // only this operation; empty: any
}

// KindClaim is what a worker knows of a kind. It is recorded with each attempt, so that a store can tell what may follow when the worker is gone.
type KindClaim struct {
	Kind    string
	Limit   int           // at most so many operations of it; 1 to MaxBatch
	Timeout time.Duration // of an attempt: no claim is renewed beyond it; more than 0
	// Window is how long after its first attempt was recorded the provider knows an effect by its key, less the caller's margin: while another attempt would end
	// within it, an unknown outcome is followed by another attempt. 0: never. [Forever]: always.
	Window time.Duration
	// NotAfter is how long after the first attempt was recorded an effect is refused by the provider itself, because every attempt carries that instant. 0: it does not.
	NotAfter time.Duration
	// MaxAttempts is after how many none follows: where none can have had an effect, the operation has failed; 1 to MaxAttempts. Those that were certainly not sent do not count: a worker that is
	// stopped, or waits for a lease, uses none up. After MaxAttempts of the package, whatever became of them, none follows either.
	MaxAttempts int
	Asks        bool // its outcome can be inquired
	Undoes      bool // its effect can be compensated
}

// Job is an attempt that has begun.
type Job struct {
	Ref
	Kind      string
	Ordinal   int    // 1 for an operation's first attempt
	Request   []byte // as it was submitted, or redacted
	Unsure    bool   // an earlier attempt may have had the effect
	Priority  int
	Order     string
	Remaining time.Duration // of the claim, unless renewed
	TimeLeft  time.Duration // of the attempt: the claim is not renewed beyond it
	// NotAfter is the instant after which the provider refuses the effect; zero where there is none. It is the same for each attempt of an operation, comes from the store's clock, and is for the
	// provider alone, whose clock decides: a request that is delayed on its way can be bounded by nothing else. Nobody here compares it with a clock but the store.
	NotAfter time.Time
}

// Ref names an attempt.
type Ref struct {
	ID     string
	Number fence.Token
}

// RenewRequest keeps claims.
type RenewRequest struct {
	Refs []Ref // at most MaxBatch
	TTL  time.Duration
}

// Completion is a worker's report of its own attempt.
type Completion struct {
	Ref
	Answer
	// RetryIn is when the next attempt or inquiry is due, where one follows.
	RetryIn time.Duration
}

// Response is evidence. See [Store.Respond].
type Response struct {
	ID string
	// Number is the attempt that was answered. 0: the provider spoke of the operation as a whole. Then [Effective] means that it was found; [Refused] is taken for the only attempt, and is
	// invalid where there were several, because it proves nothing of the others.
	Number fence.Token
	Answer
}

// DueRequest asks for what a reconciler has to do.
type DueRequest struct {
	Kinds []string // 1 to MaxKinds
	Limit int      // 1 to MaxBatch
	Hold  time.Duration
}

// Inquiry is what an inquiry found.
type Inquiry struct {
	ID      string
	Finding Finding
	// AsOf is the attempt that was current when the provider was asked ([Operation.Current]). If another one has begun since, that the key was closed or the instant has passed
	// decides nothing: a provider may have forgotten the one, or that attempt carries what the asking did not see. 0: as of now.
	AsOf   fence.Token
	Result []byte
	Reason string
	AskIn  time.Duration // when to ask again, if it is still undecided
}

// Of is the finding, as far as it says something of an operation whose current attempt is the given one: see AsOf.
func (i *Inquiry) Of(current fence.Token) Finding {
	if i.AsOf != 0 && i.AsOf != current && (i.Finding == Closed || i.Finding == PastInstant) {
		return NotObserved
	}
	return i.Finding
}

// ListRequest asks for operations. Those that match all that is set.
type ListRequest struct {
	Kind      string  // only of this kind
	States    []State // only in one of these
	Conflicts bool    // only with conflicts
	Wished    bool    // only those whose cancelling was wished for and that are not cancelled, nor undone: a compensation that failed, or was cancelled, undoes nothing
	Prefix    string  // of the id
	After     string  // ids after this one, in byte order
	Limit     int     // 1 to MaxList
	Bodies    bool    // requests and results too
}

// Verdict is an operator's.
type Verdict struct {
	ID     string
	State  State // Succeeded or Failed
	Result []byte
	Reason string // required
}

// PruneRequest says how long after its decision an operation is kept. A stage whose age is 0 is left out.
type PruneRequest struct {
	Bodies  time.Duration // then requests and results are forgotten
	Records time.Duration // then all but the id, the kind, the fingerprint and the state
	Forget  time.Duration // then the operation; at least MinForget. An id that comes again afterwards is a new operation
	Limit   int           // 1 to MaxPrune
}

// MaxPrune is how many operations one Prune handles.
const MaxPrune = 10_000

// Pruned counts what was forgotten.
type Pruned struct {
	Bodies, Records, Forgotten int
}

// Stat counts the operations of one kind in one undecided state, or with conflicts.
type Stat struct {
	Kind   string
	State  State // 0: decided, with conflicts
	Count  int
	Oldest time.Duration // age of the oldest
	Stuck  int           // of an uncertain state: those that no attempt or inquiry will end, but an operator
}

// Guarantees is what a store keeps.
type Guarantees struct {
	Store string
	// Durable: what was told survives the process and the machine.
	Durable bool
	// Failover: numbers of attempts rise also across a failover that lost what was told.
	Failover bool
	MaxBody  int
	// Deduplicates is the least time after its decision for which an id is not taken for a new operation.
	Deduplicates time.Duration
}
