package operation

import "context"

// Every method of the interfaces below is safe for concurrent use, and every call may be repeated. Errors common to all of them: one matching [ErrInvalid] for bad input,
// nothing changed; [ErrUnavailable] when the request was certainly not applied; [ErrUnknown] when it may or may not have been, which repeating it settles. A reply is given only once what
// it says is durable, as far as [Guarantees] go. After a call, whatever it returned, the request's slices are the caller's alone again, and so are the reply's.

// Store keeps operations, for whoever asks for them.
type Store interface {
	// Submit records the operation req.ID, [Pending], or returns it as it stands if it is known. The kind and the fingerprint are compared before anything else, in every state: an
	// error matching [ErrMismatch] says that the id is in use for something else.
	//
	// A compensation ([SubmitRequest.Compensates]) is recorded only once the operation that it undoes has succeeded: until then it is a [*StateError] matching [ErrUndecided], whatever
	// else has expired, and one matching [ErrDecided] where there is nothing to undo; [ErrNotFound] if that operation is unknown.
	Submit(ctx context.Context, req SubmitRequest) (Submitted, error)

	// Get returns an operation with its bodies, or an error matching [ErrNotFound]. It reads only.
	Get(ctx context.Context, id string) (Record, error)

	// Cancel is [Operation.Cancel]: the record that it returns says whether it was cancelled, or wished for. A wish is honoured by compensation if the effect turns out to have happened.
	Cancel(ctx context.Context, id, reason string) (Record, error)

	// Respond records evidence: what the provider has said, late, by a webhook or by whatever way, of one attempt, or of the operation as a whole where resp.Number is 0. See
	// [Operation.Report] and [Operation.Inquired] for what follows, and the errors that come with a record which was changed: one matching [ErrStale] or [ErrDecided] says that
	// what was said did not decide. Saying the same again changes nothing.
	Respond(ctx context.Context, resp Response) (Record, error)

	// Guarantees states what this store keeps.
	Guarantees() Guarantees
}

// Queue hands operations to workers.
type Queue interface {
	// Claim begins an attempt of each operation that it returns, in one step: at most req.Limit of those that are due, of the kinds that the worker knows, by priority, then by when they were
	// due; or the one of req.ID alone. Operations that others are claiming at this moment are skipped. Each attempt's number is greater than every number that this store has given out, and it was recorded durably
	// before Claim returned: from now on, it may have had an effect.
	//
	// What is due and can have no further attempt, because its number, its window or its instant allows none, is settled instead of begun: it has failed where no attempt can have had an effect, and
	// is to be asked about otherwise, or waits for an operator. It counts towards the limits, so that a reply may hold less than there is. Of what is due since the same instant, any may come first.
	//
	// Where the reply is lost ([ErrUnknown]) nobody works on what was claimed: it is uncertain when the claims expire.
	Claim(ctx context.Context, req ClaimRequest) ([]Job, error)

	// Renew lets the claims that it names expire req.TTL from now, but none later than its attempt's timeout, and returns those that it did not renew, because the attempt is not the open current one, or because its timeout has passed.
	// A claim whose own time has passed, and which nobody has ended, is renewed.
	Renew(ctx context.Context, req RenewRequest) ([]Ref, error)

	// Complete is [Operation.Complete] for each of them; strangers share no fate. The errors are in the order of the completions: nil, or a [*StaleError], [*NotFoundError] or
	// [*InvalidError] that says why this one was not recorded. The last result is an error of the whole call.
	Complete(ctx context.Context, all []Completion) ([]error, error)
}

// Desk is where a reconciler finds out what became of operations that no worker is at work on.
type Desk interface {
	// Expire ends attempts whose claims have expired, at most limit of them, of whatever kind, and returns how many. Each is unknown from then on ([NoAnswer]): nobody says that it did nothing.
	Expire(ctx context.Context, limit int) (int, error)

	// Due returns operations whose step is [Ask] or [Undo], of the given kinds, and puts each off by req.Hold, so that no other reconciler takes it meanwhile.
	// What follows a change of state is due at once, but what follows a worker's completion without a decision is due after its RetryIn.
	Due(ctx context.Context, req DueRequest) ([]Record, error)

	// Inquired applies what an inquiry found: see [Operation.Inquired]. [PastInstant] is refused ([ErrInvalid]) where an attempt may have carried no instant, or before that instant by this store's clock.
	Inquired(ctx context.Context, inq Inquiry) (Record, error)

	// Undone notes that an operation whose cancelling was wished for is compensated by the operation with the given id, which must exist and name it. Its step is [Undo] no longer.
	// Saying the same again changes nothing. It returns an error matching [ErrNotFound] if either is unknown, [ErrInvalid] if the other undoes something else, [ErrUndecided] or [ErrDecided] unless
	// the operation has succeeded, and [ErrMismatch] if it was undone by another.
	Undone(ctx context.Context, id, compensation string) (Record, error)
}

// Office is for operators.
type Office interface {
	// List returns operations in the order of their ids.
	List(ctx context.Context, req ListRequest) ([]Record, error)

	// Resolve is [Operation.Resolve]: an operator's verdict.
	Resolve(ctx context.Context, v Verdict) (Record, error)

	// Prune forgets what was decided long ago, in stages: bodies, then the rest of the record, then all of it. It handles at most req.Limit operations. What is to be compensated stays, and so does
	// its compensation until that is noted ([Desk.Undone]): otherwise it could be submitted, and done, again.
	Prune(ctx context.Context, req PruneRequest) (Pruned, error)

	// Stats counts what is undecided, and what needs an operator.
	Stats(ctx context.Context) ([]Stat, error)
}

// Backend is everything that a store of operations does.
type Backend interface {
	Store
	Queue
	Desk
	Office
}
