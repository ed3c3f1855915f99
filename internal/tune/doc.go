// Package tune says what a TTL costs: how likely a live holder is to lose its lease, how long work stands still after a
// crash, and how many renewals a store is given. It recommends the TTL that costs least within bounds.
//
// It holds a model in closed form ([Evaluate], [Recommend]), what the model is fed with ([Inputs], read from histograms
// or taken by [Sample]), and a simulation that plays the rules of lease.Session on a virtual clock and that the model is
// checked with ([Simulate]). The rules are written here a second time; a test holds them to a real session.
package tune
