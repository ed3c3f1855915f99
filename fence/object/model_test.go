package object_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/object"
	"github.com/tenure-go/tenure/internal/testdb/s3gateway"
)

// serial is the object as one goroutine would keep it.
type serial struct {
	mark    fence.Token
	content []byte // nil: there is no object
}

// act does one thing to it and says what the caller must be told.
func (s *serial) act(op string, token fence.Token, arg string) (read []byte, newer fence.Token) {
	if token < s.mark {
		return nil, s.mark
	}
	s.mark = token
	switch op {
	case "put":
		s.content = []byte(arg)
	case "update":
		s.content = append(append([]byte{}, s.content...), arg...)
	case "delete":
		s.content = nil
	}
	return s.content, 0
}

// TestSerialModel: random calls, each of whose answers may be lost, do what the serial model does, one after the other.
func TestSerialModel(t *testing.T) {
	t.Parallel()
	bucket, n := bucketAt(t, s3gateway.Start(t).Bucket(t)), 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		key, m := fmt.Sprint("model/", n), serial{}
		fault := ""
		b := &between{Bucket: bucket, put: func(_ context.Context, send func() error) error {
			now := fault
			fault = ""
			switch now {
			case "request lost":
				return errAnswerLost
			case "answer lost":
				return lost(send())
			case "sent twice":
				_ = send() // its answer is lost
			}
			return send()
		}}
		for range rapid.IntRange(1, 12).Draw(t, "calls") {
			op := rapid.SampledFrom([]string{"put", "update", "enter", "delete"}).Draw(t, "op")
			token := fence.Token(rapid.IntRange(1, 4).Draw(t, "token"))
			arg := rapid.SampledFrom([]string{"", "x", "y", "tenure-object1 "}).Draw(t, "content")
			fault = rapid.SampledFrom([]string{"", "", "request lost", "answer lost", "sent twice"}).Draw(t, "fault")
			read, newer := m.act(op, token, arg)
			if err := call(t.Context(), b, key, op, token, arg, read, newer); err != nil {
				t.Fatalf("%s under %d: %v", op, token, err)
			}
			got, err := object.Get(t.Context(), bucket, key)
			if gone := errors.Is(err, object.ErrAbsent); gone != (m.content == nil) || !gone && (err != nil || got.Claim != claim(m.mark)) || string(got.Content) != string(m.content) {
				t.Fatalf("after %s under %d: %+v, %v; the model has %q under %d", op, token, got, err, m.content, m.mark)
			}
		}
	})
}

// call makes a call and holds its outcome against the model's.
func call(ctx context.Context, b object.Bucket, key, op string, token fence.Token, arg string, want []byte, newer fence.Token) error {
	var err error
	switch op {
	case "put":
		err = object.Put(ctx, b, key, claim(token), []byte(arg))
	case "update":
		err = object.Update(ctx, b, key, claim(token), func(old []byte) ([]byte, error) { return append(append([]byte{}, old...), arg...), nil })
	case "delete":
		err = object.Delete(ctx, b, key, claim(token))
	case "enter":
		var read []byte
		if read, err = object.Enter(ctx, b, key, claim(token)); err == nil && (string(read) != string(want) || (read == nil) != (want == nil)) {
			return fmt.Errorf("it read %q, want %q", read, want)
		}
	}
	var r *fence.RefusedError
	switch {
	case newer == 0:
		return err
	case !errors.As(err, &r) || r.Newer != newer || r.Resource != key:
		return fmt.Errorf("%w, want a refusal that names token %d", orNil(err), newer)
	}
	return nil
}
