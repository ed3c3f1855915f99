// Package upstream is the command `tenure guard`: a reverse proxy in front of a service that knows nothing of leases. Every
// change of a protected resource passes [fencehttp.Gate] first.
//
// With turns, a request has the turn until the service has answered it, and not until its client stopped waiting: a client that
// goes away, a bound on the wait and the end of a lease all leave the service at work, and what it still does would land
// after a newer owner's write. So the call to the service goes on, its answer is read to the end and thrown away, and only
// then somebody else is let in. Bodies are read before the turn is asked for: a slow client keeps nobody waiting.
package upstream
