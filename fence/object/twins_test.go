package object_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/object"
	"github.com/tenure-go/tenure/internal/testdb/s3gateway"
)

// form is a way to keep objects: what stands between a case and the server.
type form struct {
	bucket func(object.Bucket, *raw) object.Bucket
	calls  func(object.Bucket, *raw) object.Calls
	caught string // the case that must catch it; "" for the sound form
}

func forms() map[string]form {
	same := func(b object.Bucket, _ *raw) object.Bucket { return b }
	with := func(c object.Change) func(object.Bucket, *raw) object.Calls {
		return func(b object.Bucket, _ *raw) object.Calls { return object.CallsOn(b, c) }
	}
	sound := with(object.Change{})
	return map[string]form{
		"sound": {same, sound, ""},
		// The line that stands before the content is kept in the object's metadata instead, nonce and all.
		"metadata":                      {func(_ object.Bucket, r *raw) object.Bucket { return inMetadata{r} }, sound, "a late put is refused after an enter"},
		"metadata, content comes again": {func(_ object.Bucket, r *raw) object.Bucket { return inMetadata{r} }, sound, "a late put is refused when content came back"},
		// The line has no nonce: what is written again has the same ETag again.
		"no nonce":                   {same, with(object.Change{Nonce: func() string { return strings.Repeat("0", 32) }}), "a ghost never lands"},
		"no nonce, equal enters":     {same, with(object.Change{Nonce: func() string { return strings.Repeat("0", 32) }}), "an equal enter is written"},
		"takes lower tokens":         {same, with(object.Change{Admit: takesAll}), "a stale put is refused"},
		"refuses equal tokens":       {same, with(object.Change{Admit: refusesEqual}), "a holder writes many times"},
		"heeds no names":             {same, with(object.Change{Admit: heedsNoNames}), "foreign claims are refused"},
		"store ignores conditions":   {func(_ object.Bucket, r *raw) object.Bucket { return unconditional{r} }, sound, "equal tokens lose nothing"},
		"ignored, and a late put":    {func(_ object.Bucket, r *raw) object.Bucket { return unconditional{r} }, sound, "a late put is refused after an enter"},
		"store checks, then writes":  {func(b object.Bucket, r *raw) object.Bucket { return apart{b, r} }, sound, "equal tokens lose nothing"},
		"deletes the object":         {same, forgets, "a delete keeps the mark"},
		"takes lost for not applied": {same, hopes, "overwritten and unknown is told"},
	}
}

func takesAll(m fence.Mark, c fence.Claim) (fence.Mark, error) {
	m.Token = c.Token
	return m, nil
}

func refusesEqual(m fence.Mark, c fence.Claim) (fence.Mark, error) {
	if m.Token == c.Token {
		return m, &fence.RefusedError{Resource: m.Resource, Claim: c, Why: fence.Superseded, Newer: m.Token}
	}
	return fence.Admit(m, c)
}

func heedsNoNames(m fence.Mark, c fence.Claim) (fence.Mark, error) {
	return fence.Admit(fence.Mark{Resource: m.Resource, Authority: c.Authority, Name: c.Name, Token: m.Token}, c)
}

// forgets deletes by deleting.
func forgets(b object.Bucket, r *raw) object.Calls {
	c := object.CallsOn(b, object.Change{})
	c.Delete = func(ctx context.Context, key string, _ fence.Claim) error {
		return r.client.RemoveObject(ctx, r.name, key, minio.RemoveObjectOptions{})
	}
	return c
}

// raw is the bucket as it is.
type raw struct {
	client *minio.Client
	name   string
}

func openRaw(t *testing.T, at string) *raw {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := u.User.Password()
	transport, err := minio.DefaultTransport(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := minio.New(u.Host, &minio.Options{Creds: credentials.NewStaticV4(u.User.Username(), secret, ""), Region: "us-east-1", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return &raw{client, strings.Trim(u.Path, "/")}
}

func (r *raw) put(ctx context.Context, key string, body []byte, o minio.PutObjectOptions) error {
	_, err := r.client.PutObject(ctx, r.name, key, bytes.NewReader(body), int64(len(body)), o)
	if answer := minio.ToErrorResponse(err); answer.StatusCode == http.StatusPreconditionFailed || answer.StatusCode == http.StatusConflict {
		return errors.Join(object.ErrConflict, err)
	}
	return err
}

func (r *raw) get(ctx context.Context, key string) ([]byte, minio.ObjectInfo, error) {
	o, err := r.client.GetObject(ctx, r.name, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, minio.ObjectInfo{}, err
	}
	defer o.Close()
	content, err := io.ReadAll(o)
	if minio.ToErrorResponse(err).StatusCode == http.StatusNotFound {
		return nil, minio.ObjectInfo{}, object.ErrAbsent
	}
	if err != nil {
		return nil, minio.ObjectInfo{}, err
	}
	info, err := o.Stat()
	return content, info, err
}

func conditions(etag string) (o minio.PutObjectOptions) {
	if etag == "" {
		o.SetMatchETagExcept("*")
	} else {
		o.SetMatchETag(etag)
	}
	return o
}

// inMetadata keeps the first line in the object's metadata.
type inMetadata struct{ *raw }

func (b inMetadata) PutIf(ctx context.Context, key, etag string, body []byte) error {
	line, content, _ := bytes.Cut(body, []byte("\n"))
	o := conditions(etag)
	o.UserMetadata = map[string]string{"Mark": string(line)}
	return b.put(ctx, key, content, o)
}

func (b inMetadata) Get(ctx context.Context, key string, limit int64) (object.Found, error) {
	content, info, err := b.get(ctx, key)
	if err != nil {
		return object.Found{}, err
	}
	whole := append([]byte(info.UserMetadata["Mark"]+"\n"), content...)
	return object.Found{ETag: info.ETag, Size: int64(len(whole)), Head: whole[:min(int64(len(whole)), limit)]}, nil
}

// unconditional is a store that takes conditions and does not look at them.
type unconditional struct{ *raw }

func (b unconditional) PutIf(ctx context.Context, key, _ string, body []byte) error {
	return b.put(ctx, key, body, minio.PutObjectOptions{})
}

func (b unconditional) Get(ctx context.Context, key string, limit int64) (object.Found, error) {
	content, info, err := b.get(ctx, key)
	return object.Found{ETag: info.ETag, Size: int64(len(content)), Head: content[:min(int64(len(content)), limit)]}, err
}

// apart looks at the condition, and writes in a step of its own.
type apart struct {
	object.Bucket
	raw *raw
}

func (b apart) PutIf(ctx context.Context, key, etag string, body []byte) error {
	found, err := b.Get(ctx, key, 1)
	if err != nil && !errors.Is(err, object.ErrAbsent) {
		return err
	}
	if found.ETag != etag {
		return object.ErrConflict
	}
	return b.raw.put(ctx, key, body, minio.PutObjectOptions{})
}

// hopes takes a lost answer for one that says that the condition failed.
func hopes(b object.Bucket, _ *raw) object.Calls {
	return object.CallsOn(&between{Bucket: b, put: func(_ context.Context, send func() error) error {
		if err := send(); err != nil {
			return errors.Join(object.ErrConflict, err)
		}
		return nil
	}}, object.Change{})
}

// play plays a case in a bucket of its own.
func (f form) play(t *testing.T, g *s3gateway.Gateway, one func(w world) error) error {
	t.Helper()
	at := g.Bucket(t)
	r := openRaw(t, at)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	return one(world{ctx: ctx, bucket: f.bucket(bucketAt(t, at), r), calls: func(b object.Bucket) object.Calls { return f.calls(b, r) }})
}

// TestCases plays every case on the real store.
func TestCases(t *testing.T) {
	t.Parallel()
	g := s3gateway.Start(t)
	for name, one := range cases() {
		if err := forms()["sound"].play(t, g, one); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTwins plays, for each form that is wrong, the case that must catch it.
func TestTwins(t *testing.T) {
	t.Parallel()
	g := s3gateway.Start(t)
	for name, f := range forms() {
		if f.caught == "" {
			continue
		}
		one, ok := cases()[f.caught]
		if !ok {
			t.Fatalf("%s: no case %q", name, f.caught)
		}
		err := f.play(t, g, one)
		if err == nil {
			t.Errorf("%s: %q does not catch it", name, f.caught)
		}
		t.Logf("%s: %q says: %v", name, f.caught, err)
	}
}
