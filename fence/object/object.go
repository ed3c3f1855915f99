package object

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tenure-go/tenure/fence"
)

// Object is what [Get] found.
type Object struct {
	Content []byte
	// Claim is the one under which the object was last written or entered: the mark.
	Claim fence.Claim
}

// Get reads an object. It takes no claim, and what it returns may be replaced at any moment: who reads to write uses [Update], or [Enter]s.
//
// It returns an error matching [ErrAbsent] for an object that is not there or was deleted, a [*FormatError], or the bucket's error.
func Get(ctx context.Context, b Bucket, key string) (Object, error) {
	if err := checkKey(key); err != nil {
		return Object{}, err
	}
	cur, err := sound(b).look(ctx, key, true)
	if err != nil {
		return Object{}, err
	}
	if cur.raw != nil {
		return Object{}, cur.rawErr
	}
	if !cur.present() {
		return Object{}, fmt.Errorf("object: %q: %w", key, ErrAbsent)
	}
	return Object{Content: cur.frame.content, Claim: cur.frame.claim}, nil
}

// Put replaces the object's content, or makes the object, under a claim: the mark moves in the same step. The content is not read, so what is
// written must not depend on what was there; for that there are [Update] and [Enter]. content is not kept.
//
// It returns a [*fence.RefusedError] naming the newer token if a successor has been here, a [*fence.ForeignError] if the object belongs to
// another authority or name, and an error matching [fence.ErrInvalid] for a claim or key that is none; a [*SizeError], a [*FormatError], or one matching
// [ErrRejected] or [ErrBusy]. After all of these, and after an error of reading, nothing was written. A [*UnknownError] means that it may have been: repeating the
// call under the same claim is safe. If the first has been applied, and nothing else was written since, the second writes nothing.
//
// Holders with equal tokens are not kept apart: of two Puts under one claim the later one stands. Put is safe for concurrent use. Some
// thirty calls that write one object at the same time can make each other fail with [ErrBusy].
func Put(ctx context.Context, b Bucket, key string, claim fence.Claim, content []byte) error {
	return sound(b).put(ctx, key, claim, content)
}

// Update replaces the content by what fn makes of it, in one atomic step: nobody writes in between. old is nil if there is no object, and
// not nil if there is an empty one; what fn returns is the content, and nil an empty one. fn must not change old, and is called again each time that somebody else was faster,
// at most 32 times in all; an error of fn is returned as it is, and nothing is written. Update needs no [Enter].
//
// Errors are as for [Put]. After a [*UnknownError] what fn made may be there: whoever calls Update again must see it in old, say by an id of the
// request within the content. An Update is applied at most once for each call.
func Update(ctx context.Context, b Bucket, key string, claim fence.Claim, fn func(old []byte) ([]byte, error)) error {
	return sound(b).update(ctx, key, claim, fn)
}

// Enter writes the mark, also when it is equal, and returns the content as it was at that moment: nil if there is no object, and
// not nil if there is an empty one. Whoever decides by what it read, and writes later, enters first: after that every write of an earlier holder is refused, those
// included that are on their way. It takes a read and a write of the whole object.
//
// Errors are as for [Put]. Repeating an Enter is always safe.
func Enter(ctx context.Context, b Bucket, key string, claim fence.Claim) ([]byte, error) {
	return sound(b).enter(ctx, key, claim)
}

// Delete takes the content away and keeps the mark, in an object that consists of it. Errors and repeating are as for [Put]; deleting what is not
// there is success, and writes the mark all the same.
func Delete(ctx context.Context, b Bucket, key string, claim fence.Claim) error {
	return sound(b).remove(ctx, key, claim)
}

// Adopt puts an object that was written by other means under the claim's guard, with the content that it has; one that is guarded already is
// entered. From then on nobody may write it by other means: nothing stops them, and this package refuses what they leave.
//
// Errors are as for [Put], and one matching [ErrAbsent] if there is nothing to adopt. Repeating it is safe.
func Adopt(ctx context.Context, b Bucket, key string, claim fence.Claim) error {
	return sound(b).adopt(ctx, key, claim)
}

func (r rules) put(ctx context.Context, key string, claim fence.Claim, content []byte) error {
	if len(content) > MaxContent {
		return &SizeError{Key: key, Size: int64(len(content))}
	}
	next := newFrame(claim, true, content)
	return r.write(ctx, key, claim, change{op: "put", next: func(cur state) (*frame, error) {
		if cur.frame != nil && cur.frame.present && cur.frame.claim == claim && cur.frame.sum == next.sum {
			return nil, nil // an earlier call of the same has done it
		}
		return next, nil
	}})
}

func (r rules) update(ctx context.Context, key string, claim fence.Claim, fn func(old []byte) ([]byte, error)) error {
	return r.write(ctx, key, claim, change{op: "update", reads: true, next: func(cur state) (*frame, error) {
		content, err := fn(cur.content())
		if err != nil {
			return nil, err
		}
		if len(content) > MaxContent {
			return nil, &SizeError{Key: key, Size: int64(len(content))}
		}
		return newFrame(claim, true, content), nil
	}})
}

func (r rules) enter(ctx context.Context, key string, claim fence.Claim) ([]byte, error) {
	var content []byte
	err := r.write(ctx, key, claim, change{op: "enter", reads: true, repeats: true, next: func(cur state) (*frame, error) {
		content = cur.content()
		return newFrame(claim, cur.present(), content), nil
	}})
	if err != nil {
		return nil, err
	}
	return content, nil
}

func (r rules) remove(ctx context.Context, key string, claim fence.Claim) error {
	return r.write(ctx, key, claim, change{op: "delete", next: func(cur state) (*frame, error) {
		if cur.frame != nil && !cur.frame.present && cur.frame.claim == claim {
			return nil, nil
		}
		return newFrame(claim, false, nil), nil
	}})
}

func (r rules) adopt(ctx context.Context, key string, claim fence.Claim) error {
	return r.write(ctx, key, claim, change{op: "adopt", reads: true, repeats: true, adopts: true, next: func(cur state) (*frame, error) {
		switch {
		case len(cur.raw) > MaxContent:
			return nil, &SizeError{Key: key, Size: int64(len(cur.raw))}
		case cur.raw != nil:
			return newFrame(claim, true, cur.raw), nil
		case cur.frame == nil:
			return nil, rejected("adopt", key, ErrAbsent)
		}
		return newFrame(claim, cur.frame.present, cur.frame.content), nil
	}})
}

// maxKey is the longest key of an S3 object, in bytes.
const maxKey = 1024

func checkKey(key string) error {
	if key == "" || len(key) > maxKey || !utf8.ValidString(key) || strings.ContainsRune(key, 0) {
		return &fence.InvalidError{What: "key", Problem: "want 1 to 1024 bytes of UTF-8 without NUL"}
	}
	return nil
}

// look reads what the object is now. An object that is not of this package's form is raw.
func (r rules) look(ctx context.Context, key string, whole bool) (state, error) {
	limit := int64(maxHead)
	if whole {
		limit += MaxContent
	}
	found, err := r.bucket.Get(ctx, key, limit)
	switch {
	case errors.Is(err, ErrAbsent):
		return state{}, nil
	case err != nil:
		return state{}, fmt.Errorf("object: reading %q: %w", key, err)
	case found.ETag == "":
		return state{}, fmt.Errorf("object: reading %q: the store named no ETag", key)
	case whole && found.Size > limit:
		return state{}, &SizeError{Key: key, Size: found.Size}
	case whole && found.Size != int64(len(found.Head)):
		return state{}, fmt.Errorf("object: reading %q: it has %d bytes, and %d came", key, found.Size, len(found.Head))
	}
	cur := state{etag: found.ETag}
	if cur.frame, cur.rawErr = decode(key, found.Head, whole); cur.rawErr != nil {
		cur.raw = append([]byte{}, found.Head...)
	}
	return cur, nil
}
