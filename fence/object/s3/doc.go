// Package s3 is the [object.Bucket] of package object on a store that speaks S3, by the client minio-go.
//
// The store must honour If-Match and If-None-Match on PUT, as one atomic step with the write. Some ignore them and answer 200:
// [Bucket.Check] finds that out, and belongs where a program starts.
package s3
