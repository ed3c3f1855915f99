package s3

import (
	"bytes"
	"context"
	"crypto/md5" // not for secrecy: S3 names it for the check of what arrived
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/tenure-go/tenure/fence/object"
)

// Options say where a bucket is.
type Options struct {
	// URL is http:// or https://, host, port and the bucket as the path: http://127.0.0.1:7070/orders. User and password in it are the keys.
	URL string
	// AccessKey and SecretKey are for a URL without them. Without either, what the environment says is taken
	// (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN).
	AccessKey, SecretKey string
	// Region is the bucket's. Default: us-east-1, which stores other than Amazon's take.
	Region string
}

// Bucket is a bucket of objects. It never repeats a PUT by itself. Safe for concurrent use.
type Bucket struct {
	client *minio.Client
	core   minio.Core
	name   string
	idle   func() // closes connections that are not in use
}

// Open makes a bucket's client. It sends nothing: [Bucket.Check] does. The caller gives its connections back with [Bucket.Close].
// It returns an error matching [ErrOption]; no error of it contains a key.
func Open(o Options) (*Bucket, error) {
	u, err := url.Parse(o.URL)
	if err != nil { // its text may contain the keys
		return nil, fmt.Errorf("s3: %w: the URL cannot be read", ErrOption)
	}
	name := strings.Trim(u.Path, "/")
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || name == "" || strings.Contains(name, "/") || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("s3: %w: want http://HOST:PORT/BUCKET or https://, with nothing behind the bucket", ErrOption)
	}
	if err := s3utils.CheckValidBucketName(name); err != nil {
		return nil, fmt.Errorf("s3: %w: bucket %q: %w", ErrOption, name, err)
	}
	if u.User != nil {
		o.AccessKey = u.User.Username()
		o.SecretKey, _ = u.User.Password()
	}
	if (o.AccessKey == "") != (o.SecretKey == "") {
		return nil, fmt.Errorf("s3: %w: an access key and a secret key go together", ErrOption)
	}
	keys := credentials.NewStaticV4(o.AccessKey, o.SecretKey, "")
	if o.AccessKey == "" {
		keys = credentials.NewEnvAWS()
	}
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	secure := u.Scheme == "https"
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	client, err := minio.New(u.Host, &minio.Options{Creds: keys, Secure: secure, Transport: transport, Region: o.Region, MaxRetries: readTries})
	if err != nil {
		return nil, fmt.Errorf("s3: %w: %w", ErrOption, err)
	}
	b := New(client, name)
	b.idle = transport.CloseIdleConnections
	return b, nil
}

// readTries is how often a read is sent at most.
const readTries = 3

// New makes a bucket of a client that the caller has. The client's retries are for reads: a PUT is sent once, whatever it says.
func New(client *minio.Client, bucket string) *Bucket {
	return &Bucket{client: client, core: minio.Core{Client: client}, name: bucket, idle: func() {}}
}

// Close gives back idle connections of a bucket that [Open] made.
func (b *Bucket) Close() { b.idle() }

// Client returns the client and the bucket's name, for what this package does not do. Whoever writes a guarded object with it writes
// without a check.
func (b *Bucket) Client() (*minio.Client, string) { return b.client, b.name }

// String is endpoint and bucket, without keys.
func (b *Bucket) String() string {
	return strings.TrimSuffix(b.client.EndpointURL().String(), "/") + "/" + b.name
}

// Get is [object.Bucket]'s.
func (b *Bucket) Get(ctx context.Context, key string, limit int64) (object.Found, error) {
	var options minio.GetObjectOptions
	if err := options.SetRange(0, limit-1); err != nil {
		return object.Found{}, fmt.Errorf("s3: %w", err)
	}
	found, err := b.get(ctx, key, limit, options)
	if answer := (minio.ErrorResponse{}); errors.As(err, &answer) && answer.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		found, err = b.get(ctx, key, limit, minio.GetObjectOptions{}) // it is empty, and has no first byte
	}
	if answer := (minio.ErrorResponse{}); errors.As(err, &answer) {
		if answer.Code == minio.NoSuchKey {
			return found, fmt.Errorf("s3: %s: %w", b, object.ErrAbsent)
		}
		return found, fmt.Errorf("s3: %s: reading was answered with %s", b, said(answer))
	}
	if err != nil {
		return found, fmt.Errorf("s3: %s: %w", b, err)
	}
	return found, nil
}

func (b *Bucket) get(ctx context.Context, key string, limit int64, options minio.GetObjectOptions) (object.Found, error) {
	body, info, header, err := b.core.GetObject(ctx, b.name, key, options)
	if err != nil {
		return object.Found{}, err
	}
	defer func() { _ = body.Close() }() // it was only read
	head := bytes.NewBuffer(make([]byte, 0, max(0, min(info.Size, limit))+bytes.MinRead))
	if _, err := head.ReadFrom(io.LimitReader(body, limit)); err != nil {
		return object.Found{}, err
	}
	found := object.Found{ETag: info.ETag, Size: info.Size, Head: head.Bytes()}
	if of := header.Get("Content-Range"); of != "" {
		_, total, _ := strings.Cut(of, "/")
		if found.Size, err = strconv.ParseInt(total, 10, 64); err != nil {
			return object.Found{}, fmt.Errorf("the range %q has no length", of)
		}
	}
	return found, nil
}

// PutIf is [object.Bucket]'s.
func (b *Bucket) PutIf(ctx context.Context, key, etag string, body []byte) error {
	// What the client refuses by itself, without a code, was not sent.
	if err := errors.Join(s3utils.CheckValidBucketName(b.name), s3utils.CheckValidObjectName(key)); err != nil {
		return fmt.Errorf("%w: %w", object.ErrRejected, err)
	}
	var options minio.PutObjectOptions
	if etag == "" {
		options.SetMatchETagExcept("*")
	} else {
		options.SetMatchETag(etag)
	}
	return putError(b.put(ctx, key, body, options))
}

// put sends one PUT. The client repeats a request only if it can go back to the beginning of the body, so it is handed a body that cannot:
// a PUT that was applied and repeated would be told that its condition does not hold. The checksums let the server refuse what was changed on the way.
func (b *Bucket) put(ctx context.Context, key string, body []byte, options minio.PutObjectOptions) error {
	once := struct{ io.Reader }{bytes.NewReader(body)}
	options.DisableContentSha256 = true // of the client's own, in chunks: it has the one of the whole
	md5sum, sha := md5.Sum(body), sha256.Sum256(body)
	_, err := b.core.PutObject(ctx, b.name, key, once, int64(len(body)),
		base64.StdEncoding.EncodeToString(md5sum[:]), hex.EncodeToString(sha[:]), options)
	return err
}
