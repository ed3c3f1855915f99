// Package fresh is until when a value counts as current: a cache that says of each value how old it is, and what a route does when the source is away.
//
// A [Cache] never notifies, cancels or locks. That a value is stale does not tell anybody so, ends no work that goes by it, and takes away no right: a reader may have a value
// whose source has changed since, fresh or not. Who must act on the newest state asks the authority, and what must not be overwritten is guarded by package fence.
//
// [Routes] hold, for each route of a service, what happens when the source is away: old data with its age is served, the request is refused, or it is left
// pending. A route that writes says which; without that the service does not start.
package fresh
