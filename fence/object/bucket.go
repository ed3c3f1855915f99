package object

import "context"

// Bucket is what this package asks of a store of objects. Package s3 below implements it. Implementations are safe for concurrent use.
type Bucket interface {
	// Get reads the first limit bytes of the object, and its ETag and size, all three of one and the same write, and sees every
	// write that was answered before it was called: it asks the store itself, no cache and no replica. It returns an error matching [ErrAbsent] if there is
	// no object; after any other error nothing is known.
	Get(ctx context.Context, key string, limit int64) (Found, error)

	// PutIf replaces the object by body in one atomic step, if its ETag is still etag; with "" it makes the object, if there is none.
	// It sends one request, and never repeats it by itself: a repetition would be told that the condition failed because of the first.
	//
	// It returns nil if the object was written; an error matching [ErrConflict] if the condition did not hold, and one matching
	// [ErrRejected] if the object was certainly not written for another reason. After any other error it may have been written, or may be yet.
	PutIf(ctx context.Context, key, etag string, body []byte) error
}

// Found is what [Bucket.Get] found. ETag is opaque, as [Bucket.PutIf] takes it, and differs for different content.
type Found struct {
	ETag string
	Size int64  // of the whole object, bytes
	Head []byte // its beginning
}
