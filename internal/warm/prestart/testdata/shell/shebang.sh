#!/usr/bin/env python3
echo not python
