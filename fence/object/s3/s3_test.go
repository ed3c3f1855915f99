package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/object"
	"github.com/tenure-go/tenure/internal/testdb/s3gateway"
)

// TestCheck: a store that keeps the conditions passes, and leaves nothing behind; each that does not is named, with what was seen.
func TestCheck(t *testing.T) {
	t.Parallel()
	at := s3gateway.Start(t).Bucket(t)
	b := open(t, at)
	if err := b.Check(t.Context(), "orders/"); err != nil {
		t.Error(err)
	}
	for found := range b.client.ListObjects(t.Context(), b.name, minio.ListObjectsOptions{Recursive: true}) {
		t.Errorf("it left %+v", found)
	}
	if err := open(t, (&fake{}).serve(t)).Check(t.Context(), ""); err != nil {
		t.Errorf("the fake that keeps conditions: %v", err)
	}
	for seen, f := range map[string]*fake{
		"If-None-Match: * for a key that is there was answered with 200": {ignoreNoneMatch: true},
		"If-Match with another ETag was answered with 200":               {ignoreMatch: true},
		"200 8 times":                 {apart: racers},
		`with the ETag ""`:            {noETag: true},
		`was answered with "first\n"`: {changes: true},
	} {
		err := open(t, f.serve(t)).Check(t.Context(), "")
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), seen) || !strings.Contains(err.Error(), "/bucket") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("want %q: %v", seen, err)
		}
	}
	// A store that does not know the header says so: no judgement, and nothing was written.
	err := open(t, (&fake{status: http.StatusNotImplemented}).serve(t)).Check(t.Context(), "")
	if !errors.Is(err, object.ErrRejected) || errors.Is(err, ErrUnsupported) {
		t.Errorf("501: %v", err)
	}
}

// TestPutIsSentOnce: whatever is answered, and however often the client would repeat.
func TestPutIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusRequestTimeout} {
		f := &fake{status: status}
		b := open(t, f.serve(t))
		err := b.PutIf(t.Context(), "k", "", []byte("x"))
		if err == nil || errors.Is(err, object.ErrRejected) || errors.Is(err, object.ErrConflict) || f.sent() != 1 {
			t.Errorf("%d: sent %d times: %v", status, f.sent(), err)
		}
		// The twin: the same by a body that the client can read again.
		if _, err := b.client.PutObject(t.Context(), b.name, "k", bytes.NewReader([]byte("x")), 1, minio.PutObjectOptions{}); err == nil || f.sent() != 1+readTries {
			t.Errorf("%d: the twin was sent %d times: %v", status, f.sent()-1, err)
		}
	}
	p := &proxy{cut: func(int) bool { return true }}
	b := open(t, p.through(t, s3gateway.Start(t).Bucket(t)))
	if err := b.PutIf(t.Context(), "k", "", []byte("x")); err == nil || errors.Is(err, object.ErrRejected) || errors.Is(err, object.ErrConflict) || p.sent() != 1 {
		t.Errorf("cut off: sent %d times: %v", p.sent(), err)
	}
}

// TestAnswersLost: the connection is cut after the PUT was applied. The call finds out that it was, and repeating it writes nothing.
func TestAnswersLost(t *testing.T) {
	t.Parallel()
	at := s3gateway.Start(t).Bucket(t)
	p := &proxy{cut: func(put int) bool { return put%2 == 1 }}
	b, ctx := open(t, p.through(t, at)), t.Context()
	if err := object.Put(ctx, b, "k", claim(1), []byte("x\n")); err != nil || p.sent() != 1 {
		t.Errorf("sent %d times: %v", p.sent(), err)
	}
	if err := object.Put(ctx, b, "k", claim(1), []byte("x\n")); err != nil || p.sent() != 1 {
		t.Errorf("repeated: sent %d times: %v", p.sent(), err)
	}
	// Several at a time: each is applied once, however it was answered.
	const writers, each = 4, 6
	var all sync.WaitGroup
	failures := make([]error, writers)
	for i := range writers {
		all.Go(func() {
			for n := range each {
				line := fmt.Sprintf("%d/%d\n", i, n)
				failures[i] = errors.Join(failures[i], appendOnce(ctx, b, line))
			}
		})
	}
	all.Wait()
	got, err := object.Get(ctx, open(t, at), "k")
	if err := errors.Join(errors.Join(failures...), err); err != nil {
		t.Fatal(err)
	}
	for i := range writers {
		for n := range each {
			if line := fmt.Sprintf("%d/%d\n", i, n); strings.Count("\n"+string(got.Content), "\n"+line) != 1 {
				t.Errorf("%q is not there once:\n%s", line, got.Content)
			}
		}
	}
}

// appendOnce appends a line, until it is known that it is there.
func appendOnce(ctx context.Context, b object.Bucket, line string) error {
	for {
		err := object.Update(ctx, b, "k", claim(1), func(old []byte) ([]byte, error) {
			if bytes.Contains(old, []byte("\n"+line)) {
				return old, nil // by an earlier call, whose outcome was unknown
			}
			return append(bytes.Clone(old), line...), nil
		})
		if !errors.Is(err, object.ErrUnknown) {
			return err
		}
	}
}

// TestTwoClaimsRace: of two holders that write at the same time, the older writes nothing after the newer.
func TestTwoClaimsRace(t *testing.T) {
	t.Parallel()
	at := s3gateway.Start(t).Bucket(t)
	for round := range 20 {
		key := fmt.Sprint("race/", round)
		var all sync.WaitGroup
		answers := make([]error, 2)
		for i := range answers {
			b := open(t, at)
			all.Go(func() {
				answers[i] = object.Put(t.Context(), b, key, claim(fence.Token(i+1)), fmt.Append(nil, "token ", i+1))
			})
		}
		all.Wait()
		got, err := object.Get(t.Context(), open(t, at), key)
		if err := errors.Join(answers[1], err); err != nil {
			t.Fatal(err)
		}
		if answers[0] != nil && !errors.Is(answers[0], fence.ErrRefused) || string(got.Content) != "token 2" || got.Claim != claim(2) {
			t.Errorf("round %d: %v, and the object is %+v", round, answers[0], got)
		}
	}
}

// TestWhatIsKnown: which errors say that nothing was written.
func TestWhatIsKnown(t *testing.T) {
	t.Parallel()
	at := s3gateway.Start(t).Bucket(t)
	gone := (&fake{}).serve(t)
	for what, bucket := range map[string]*Bucket{
		"wrong keys": open(t, strings.Replace(at, "@", "x@", 1)),
		"no bucket":  open(t, at+"x"),
		"nobody":     open(t, closedPort(gone)),
	} {
		err := bucket.PutIf(t.Context(), "k", "", []byte("x"))
		if !errors.Is(err, object.ErrRejected) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := bucket.Get(t.Context(), "k", 1); err == nil || errors.Is(err, object.ErrAbsent) {
			t.Errorf("%s: reading: %v", what, err)
		}
		if err := bucket.Check(t.Context(), ""); err == nil || errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: checking: %v", what, err)
		}
	}
	b := open(t, at)
	if err := New(b.client, "b").PutIf(t.Context(), "k", "", nil); !errors.Is(err, object.ErrRejected) {
		t.Errorf("no name for a bucket: %v", err)
	}
	if err := b.PutIf(t.Context(), "", "", nil); !errors.Is(err, object.ErrRejected) {
		t.Errorf("no key: %v", err)
	}
	if err := b.PutIf(t.Context(), "none", "0123456789abcdef0123456789abcdef", []byte("x")); !errors.Is(err, object.ErrConflict) {
		t.Errorf("If-Match without an object: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.PutIf(ctx, "k", "", nil); err == nil || errors.Is(err, object.ErrConflict) {
		t.Errorf("without time: %v", err)
	}
}

// closedPort is the URL with a port at which nobody listens.
func closedPort(at string) string {
	before, _, _ := strings.Cut(at, "127.0.0.1:")
	return before + "127.0.0.1:1/bucket"
}

// TestGet: absent, empty, a part, odd keys.
func TestGet(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, s3gateway.Start(t).Bucket(t)), t.Context()
	if _, err := b.Get(ctx, "k", 10); !errors.Is(err, object.ErrAbsent) {
		t.Errorf("absent: %v", err)
	}
	for _, key := range []string{"k", "a b/ü&%41+,;=.json", "dir/dir/dir/k"} {
		for _, content := range []string{"", "x", "0123456789", "0123456789x"} {
			before, err := b.Get(ctx, key, 10)
			if err != nil && !errors.Is(err, object.ErrAbsent) {
				t.Fatal(err)
			}
			if err := b.PutIf(ctx, key, before.ETag, []byte(content)); err != nil {
				t.Fatalf("%q: %v", key, err)
			}
			got, err := b.Get(ctx, key, 10)
			if err != nil || got.Size != int64(len(content)) || string(got.Head) != content[:min(len(content), 10)] || got.ETag == before.ETag {
				t.Errorf("%q: %q is read as %+v, %v", key, content, got, err)
			}
		}
	}
	mine := New(b.client, b.name)
	defer mine.Close()
	if got, err := mine.Get(ctx, "k", 1); err != nil || got.Size != 11 {
		t.Errorf("by the caller's own client: %+v, %v", got, err)
	}
}

// TestOptions: what is no place is refused, and no error shows a key.
func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{}, {URL: "127.0.0.1:7070/bucket"}, {URL: "ftp://127.0.0.1/bucket"}, {URL: "http://127.0.0.1:7070"}, {URL: "http://127.0.0.1:7070/"},
		{URL: "http:///bucket"}, {URL: "http://h/bucket/prefix"}, {URL: "http://h/b"}, {URL: "http://h/bucket?x=1"}, {URL: "http://h/bucket#x"},
		{URL: "http://key:hidden@h:7070:1/bucket"}, {URL: "http://key:hidden%zz@h/bucket"}, {URL: "http://key@h/bucket"},
		{URL: "http://h/bucket", AccessKey: "key"}, {URL: "http://h/bucket", SecretKey: "hidden"},
	} {
		b, err := Open(o)
		if !errors.Is(err, ErrOption) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%+v: %v, %v", o, b, err)
		}
	}
	b, err := Open(Options{URL: "https://key:hidden@store.example.com:8443/bucket"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if text := fmt.Sprint(b); text != "https://store.example.com:8443/bucket" {
		t.Errorf("it is shown as %s", text)
	}
}

// TestKeysOfTheEnvironment are taken where neither URL nor options have any.
func TestKeysOfTheEnvironment(t *testing.T) {
	at := s3gateway.Start(t).Bucket(t)
	scheme, rest, _ := strings.Cut(at, "://")
	keys, place, _ := strings.Cut(rest, "@")
	access, secret, _ := strings.Cut(keys, ":")
	t.Setenv("AWS_ACCESS_KEY_ID", access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	if err := open(t, scheme+"://"+place).Check(t.Context(), ""); err != nil {
		t.Error(err)
	}
}
