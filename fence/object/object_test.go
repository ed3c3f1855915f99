package object_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/object"
	"github.com/tenure-go/tenure/fence/object/s3"
	"github.com/tenure-go/tenure/internal/testdb/s3gateway"
)

// open is a bucket of its own on a server of its own.
func open(t *testing.T) (*s3.Bucket, *raw) {
	t.Helper()
	at := s3gateway.Start(t).Bucket(t)
	return bucketAt(t, at), openRaw(t, at)
}

// TestWrittenByOtherMeans: what somebody writes without a claim is noticed, never taken for content, and may be adopted.
func TestWrittenByOtherMeans(t *testing.T) {
	t.Parallel()
	b, r := open(t)
	ctx := t.Context()
	w := world{ctx: ctx, bucket: b}
	if err := is(object.Adopt(ctx, b, key, claim(1)), object.ErrAbsent); err != nil {
		t.Error(err)
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 17<<16) // by minio-go's multipart upload, whose ETags have another form
	for i, content := range [][]byte{[]byte("plain"), {}, []byte("tenure-object1 damaged\n"), bytes.Repeat([]byte("x"), 5000), large} {
		if err := r.put(ctx, key, content, minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
		token := fence.Token(i + 2)
		_, got := object.Get(ctx, b, key)
		_, entered := object.Enter(ctx, b, key, claim(token))
		err := errors.Join(is(got, object.ErrFormat), is(entered, object.ErrFormat),
			is(object.Put(ctx, b, key, claim(token), []byte("y")), object.ErrFormat),
			is(object.Delete(ctx, b, key, claim(token)), object.ErrFormat),
			object.Adopt(ctx, b, key, claim(token)), object.Adopt(ctx, b, key, claim(token)), w.holds(string(content), token),
			refused(object.Adopt(ctx, b, key, claim(1)), token))
		if err != nil {
			t.Errorf("content %d: %.500v", i, err)
		}
	}
}

// TestSizes: content up to the limit goes in one PUT, and beyond it nothing is sent.
func TestSizes(t *testing.T) {
	t.Parallel()
	at := s3gateway.Start(t).Bucket(t)
	b := &between{Bucket: bucketAt(t, at)}
	ctx := t.Context()
	content := bytes.Repeat([]byte("0123456789abcdef"), object.MaxContent/16)
	if err := object.Put(ctx, b, key, claim(1), content); err != nil || b.sent() != 1 {
		t.Fatalf("%d PUTs: %v", b.sent(), err)
	}
	got, err := object.Get(ctx, b, key)
	if err != nil || !bytes.Equal(got.Content, content) {
		t.Errorf("%d bytes are read: %v", len(got.Content), err)
	}
	content = append(content, 'x')
	err = errors.Join(is(object.Put(ctx, b, key, claim(1), content), object.ErrTooLarge),
		is(object.Update(ctx, b, key, claim(1), func([]byte) ([]byte, error) { return content, nil }), object.ErrTooLarge))
	if err != nil || b.sent() != 1 {
		t.Errorf("%d PUTs: %v", b.sent(), err)
	}
	// A larger one that others have written is refused unread.
	content = append(content, make([]byte, 4096)...)
	if err := openRaw(t, at).put(ctx, key, content, minio.PutObjectOptions{DisableMultipart: true}); err != nil {
		t.Fatal(err)
	}
	if err := is(object.Adopt(ctx, b, key, claim(1)), object.ErrTooLarge); err != nil {
		t.Error(err)
	}
}

// TestUpdateFails: an error of the caller's function comes back as it is, and nothing is written.
func TestUpdateFails(t *testing.T) {
	t.Parallel()
	bucket, _ := open(t)
	b := &between{Bucket: bucket}
	mine := errors.New("mine")
	err := object.Update(t.Context(), b, key, claim(1), func(old []byte) ([]byte, error) {
		if old != nil {
			return nil, fmt.Errorf("old is %q where there is no object", old)
		}
		return nil, mine
	})
	if !errors.Is(err, mine) || b.sent() != 0 {
		t.Errorf("%d PUTs: %v", b.sent(), err)
	}
	if err := object.Put(t.Context(), b, key, claim(1), nil); err != nil {
		t.Fatal(err)
	}
	err = object.Update(t.Context(), b, key, claim(1), func(old []byte) ([]byte, error) {
		if old == nil || len(old) > 0 {
			return nil, fmt.Errorf("old is %#v where the object is empty", old)
		}
		return []byte("x"), nil
	})
	if err != nil {
		t.Error(err)
	}
}

// stub is a bucket whose answers are set.
type stub struct {
	found func() (object.Found, error)
	put   func() error
}

func (s stub) Get(context.Context, string, int64) (object.Found, error) { return s.found() }
func (s stub) PutIf(context.Context, string, string, []byte) error      { return s.put() }
func nothing() (object.Found, error)                                    { return object.Found{}, object.ErrAbsent }
func putX(ctx context.Context, b object.Bucket, token fence.Token) error {
	return object.Put(ctx, b, key, claim(token), []byte("x"))
}

// TestBounds: a store that always says that something has changed, or never answers, ends a call in a stated number of attempts.
func TestBounds(t *testing.T) {
	for name, c := range map[string]struct {
		answer, want error
	}{
		"contention": {object.ErrConflict, object.ErrBusy},
		"silence":    {errAnswerLost, object.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				puts, began := 0, time.Now()
				err := putX(t.Context(), stub{nothing, func() error { puts++; return c.answer }}, 1)
				if took := time.Since(began); !errors.Is(err, c.want) || puts != object.MaxAttempts || took > 8*time.Second {
					t.Errorf("%d PUTs in %v: %v", puts, took, err)
				}
				for _, other := range []error{object.ErrBusy, object.ErrUnknown, object.ErrRejected, fence.ErrRefused} {
					if !errors.Is(other, c.want) && errors.Is(err, other) {
						t.Errorf("%v also matches %v", err, other)
					}
				}
			})
		})
	}
}

// TestContextEnds: before anything is sent, nothing was written; afterwards it is as the last answer has it.
func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("no more time")
		for name, c := range map[string]struct {
			answer  error
			unknown bool
		}{
			"after a conflict": {object.ErrConflict, false},
			"after silence":    {errAnswerLost, true},
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			err := putX(ctx, stub{nothing, func() error { cancel(cause); return c.answer }}, 1)
			if errors.Is(err, object.ErrUnknown) != c.unknown || err == nil || !c.unknown && !errors.Is(err, cause) {
				t.Errorf("%s: %v", name, err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if err := putX(ctx, stub{nothing, func() error { t.Error("it was sent"); return nil }}, 1); !errors.Is(err, cause) {
			t.Errorf("before: %v", err)
		}
	})
}

// TestRejected: an answer that says that nothing was written is one, unless an earlier PUT of the call may have been applied.
func TestRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{errAnswerLost, object.ErrRejected}
		next := func() error {
			answer := answers[0]
			answers = answers[1:]
			return answer
		}
		if err := putX(t.Context(), stub{nothing, next}, 1); !errors.Is(err, object.ErrUnknown) || errors.Is(err, object.ErrRejected) {
			t.Errorf("after a lost answer: %v", err)
		}
		answers = []error{object.ErrConflict, object.ErrRejected}
		if err := putX(t.Context(), stub{nothing, next}, 1); !errors.Is(err, object.ErrRejected) || errors.Is(err, object.ErrUnknown) {
			t.Errorf("after a conflict: %v", err)
		}
	})
}

// TestErrorsSayWhatToDo reads the texts.
func TestErrorsSayWhatToDo(t *testing.T) {
	for text, err := range map[string]error{
		"repeat the same call": &object.UnknownError{Key: key, Claim: claim(1), Err: errAnswerLost},
		"acquire the lease":    &object.UnknownError{Key: key, Claim: claim(1), Newer: 2, Err: errAnswerLost},
		"Adopt":                &object.FormatError{Key: key, Problem: "it is not"},
		"never written again":  &object.SizeError{Key: key, Size: 1 << 40},
	} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("no %q in %v", text, err)
		}
	}
}
