#!/usr/bin/env bash
echo none
