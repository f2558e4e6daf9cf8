"""Schedulers: who plans applications, how an application finds one, and how one comes into being and goes.

Nobody appoints a scheduler. Nodes gossip what schedulers say of themselves (`advertisements`, `gossip`); a submission looks for
one with room (`finding`), takes the office that is free when there is none (`electing`, `claims`), and hands its application
over (`dispatching`). `role` is the scheduler itself, `keeping` the application's side of the tie between the two. Imports what
the node imports; the node composes it through `schedulers`.
"""
