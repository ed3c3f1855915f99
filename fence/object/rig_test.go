package object_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/object"
	"github.com/tenure-go/tenure/fence/object/s3"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const key = "orders/1.json"

// claim is one to the name that guards the object in all tests.
func claim(token fence.Token) fence.Claim {
	return fence.Claim{Authority: fence.ID{15: 1}, Name: "orders/1", Acquisition: fence.ID{15: byte(token)}, Token: token}
}

// bucketAt opens the bucket of a URL.
func bucketAt(t *testing.T, url string) *s3.Bucket {
	t.Helper()
	b, err := s3.Open(s3.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// world is where a case is played: a real bucket, and the calls on it or on something around it.
type world struct {
	ctx    context.Context
	bucket object.Bucket
	calls  func(object.Bucket) object.Calls
}

func (w world) on(b object.Bucket) object.Calls { return w.calls(b) }
func (w world) plain() object.Calls             { return w.calls(w.bucket) }

// holds makes sure that the object has that content under that token.
func (w world) holds(content string, token fence.Token) error {
	got, err := object.Get(w.ctx, w.bucket, key)
	if err != nil {
		return err
	}
	if string(got.Content) != content || got.Claim.Token != token {
		return fmt.Errorf("the object holds %q under token %d, want %q under %d", got.Content, got.Claim.Token, content, token)
	}
	return nil
}

// refused makes sure that err is a refusal that names the newer token.
func refused(err error, newer fence.Token) error {
	var r *fence.RefusedError
	if !errors.As(err, &r) || r.Newer != newer || r.Resource != key {
		return fmt.Errorf("%w, want a refusal that names token %d", orNil(err), newer)
	}
	return nil
}

// is makes sure that err matches want.
func is(err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("%w, want %w", orNil(err), want)
	}
	return nil
}

func orNil(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// between stands between the calls and a bucket. nil: nothing is changed.
type between struct {
	object.Bucket
	put func(ctx context.Context, send func() error) error
	get func(ctx context.Context, read func() (object.Found, error)) (object.Found, error)

	mu   sync.Mutex
	puts int
}

func (b *between) PutIf(ctx context.Context, key, etag string, body []byte) error {
	b.mu.Lock()
	b.puts++
	b.mu.Unlock()
	send := func() error { return b.Bucket.PutIf(ctx, key, etag, body) }
	if b.put == nil {
		return send()
	}
	return b.put(ctx, send)
}

func (b *between) Get(ctx context.Context, key string, limit int64) (object.Found, error) {
	read := func() (object.Found, error) { return b.Bucket.Get(ctx, key, limit) }
	if b.get == nil {
		return read()
	}
	return b.get(ctx, read)
}

func (b *between) sent() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.puts
}

// once is fn for the first call and nothing in between for the others.
func once(fn func(ctx context.Context, send func() error) error) func(ctx context.Context, send func() error) error {
	var first sync.Once
	return func(ctx context.Context, send func() error) error {
		err, now := error(nil), false
		first.Do(func() { err, now = fn(ctx, send), true })
		if now {
			return err
		}
		return send()
	}
}

// bound ends a test that hangs.
const bound = 30 * time.Second

// late starts a call whose PUT is held back, and returns when it is: continued lets it go, and returns the call's error.
func (w world) late(call func(c object.Calls) error) (continued func() error, _ error) {
	held, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	b := &between{Bucket: w.bucket, put: once(func(_ context.Context, send func() error) error {
		close(held)
		<-goOn
		return send()
	})}
	go func() { done <- call(w.on(b)) }()
	select {
	case <-held:
	case err := <-done:
		return nil, fmt.Errorf("the call ended before it sent anything: %w", orNil(err))
	}
	return func() error { close(goOn); return <-done }, nil
}

var errAnswerLost = errors.New("the connection was cut")

// lost hides what the store answered.
func lost(error) error { return errAnswerLost }

// appends is an update that appends a line.
func appends(line string) func(old []byte) ([]byte, error) {
	return func(old []byte) ([]byte, error) { return append(bytes.Clone(old), line+"\n"...), nil }
}
